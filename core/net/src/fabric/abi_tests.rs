//! The declarations have the places that libfabric's headers say.

use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::abi::*;

/// Folder of the headers: named, the system's, or that of scripts/install-fabric.sh.
fn include() -> Option<PathBuf> {
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = std::env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    let installed = data.map(|data| data.join("towpath/fabric/usr/include"));
    let named = std::env::var_os("LIBFABRIC_INCLUDE").map(PathBuf::from);
    let places = [named, Some("/usr/include".into()), installed];
    places.into_iter().flatten().find(|place| place.join("rdma/fabric.h").is_file())
}

#[test]
fn declarations_agree_with_the_headers() {
    let Some(include) = include() else { return eprintln!("skipped: no libfabric headers here") };
    if Command::new("cc").arg("--version").output().is_err() {
        return eprintln!("skipped: no C compiler here");
    }
    let mut text = String::new();
    for header in ["fabric", "fi_domain", "fi_endpoint", "fi_cm", "fi_eq", "fi_errno"] {
        writeln!(text, "#include <rdma/{header}.h>").unwrap();
    }
    let mut assert = |what: String| writeln!(text, "_Static_assert({what}, \"\");").unwrap();
    macro_rules! same {
        ($($ours:ident = $theirs:literal: $($field:ident $(= $other:literal)?),*;)*) => {
            $($(
                let field = [stringify!($field) $(, $other)?];
                let (field, at) = (field[field.len() - 1], offset_of!($ours, $field));
                assert(format!("__builtin_offsetof(struct {}, {field}) == {at}", $theirs));
            )*)*
        };
    }
    same! {
        FabricInfo = "fi_info": next, caps, mode, addr_format, src_addrlen, src_addr, dest_addr, handle, tx_attr,
            rx_attr, ep_attr, domain_attr, fabric_attr;
        QueueAttributes = "fi_tx_attr": caps, mode, op_flags, msg_order, comp_order, buffered = "inject_size", size;
        QueueAttributes = "fi_rx_attr": caps, mode, op_flags, msg_order, comp_order,
            buffered = "total_buffered_recv", size;
        EndpointAttributes = "fi_ep_attr": kind = "type", protocol, max_msg_size, msg_prefix_size;
        DomainAttributes = "fi_domain_attr": domain, name, threading, control_progress, data_progress,
            resource_mgmt, av_type, mr_mode;
        FabricAttributes = "fi_fabric_attr": fabric, name, prov_name;
        Fid = "fid": class = "fclass", context, ops;
        FidOps = "fi_ops": size, close, bind, control;
        FidFabric = "fid_fabric": fid, ops;
        FabricOps = "fi_ops_fabric": size, domain, passive_ep, eq_open, wait_open, trywait;
        FidDomain = "fid_domain": fid, ops, mr;
        DomainOps = "fi_ops_domain": size, av_open, cq_open, endpoint;
        MemoryOps = "fi_ops_mr": size, reg;
        FidMemory = "fid_mr": fid, mem_desc;
        AddressAttributes = "fi_av_attr": kind = "type", rx_ctx_bits, count, ep_per_node, name, map_addr, flags;
        FidAddresses = "fid_av": fid, ops;
        AddressOps = "fi_ops_av": size, insert;
        CompletionAttributes = "fi_cq_attr": size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set;
        CompletionEntry = "fi_cq_msg_entry": op_context, flags, len;
        CompletionError = "fi_cq_err_entry": op_context, flags, len, buf, data, tag, olen, err, prov_errno,
            err_data, err_data_size;
        FidCq = "fid_cq": fid, ops;
        CompletionOps = "fi_ops_cq": size, read, readfrom, readerr;
        FidEndpoint = "fid_ep": fid, ops, cm, msg;
        NameOps = "fi_ops_cm": size, setname, getname;
        MessageOps = "fi_ops_msg": size, recv, recvv, recvmsg, send;
    }
    macro_rules! constants {
        ($($name:ident),*) => { $(assert(format!("{} == {}", stringify!($name), $name));)* };
    }
    constants!(FI_EP_RDM, FI_THREAD_SAFE, FI_RM_ENABLED, FI_MR_LOCAL, FI_MR_VIRT_ADDR, FI_MR_ALLOCATED);
    constants!(
        FI_MR_PROV_KEY,
        FI_MR_ENDPOINT,
        FI_CQ_FORMAT_MSG,
        FI_WAIT_NONE,
        FI_WAIT_FD,
        FI_GETWAIT,
        FI_ENABLE
    );
    constants!(FI_EAGAIN, FI_ENODATA, FI_EAVAIL, FI_ETRUNC);
    macro_rules! flags {
        ($($name:ident),*) => { $(assert(format!("{} == {}ULL", stringify!($name), $name));)* };
    }
    flags!(FI_MSG, FI_RECV, FI_SEND, FI_SOURCE, FI_NUMERICHOST, FI_CONTEXT, FI_CONTEXT2, FI_ORDER_SAS);
    flags!(FI_ADDR_UNSPEC);
    assert(format!("sizeof(struct fi_av_attr) == {}", size_of::<AddressAttributes>()));
    assert(format!("sizeof(struct fi_cq_attr) == {}", size_of::<CompletionAttributes>()));
    assert(format!("sizeof(struct fi_cq_msg_entry) == {}", size_of::<CompletionEntry>()));
    assert(format!("sizeof(struct fi_cq_err_entry) <= {}", size_of::<CompletionError>()));
    assert("sizeof(struct fi_context2) == 64".into());
    assert(format!("FI_SOCKADDR == {} && FI_SOCKADDR_IN6 == {}", IP_FORMATS.start(), IP_FORMATS.end()));
    let mut compiler = Command::new("cc");
    compiler.arg("-I").arg(include).args(["-std=gnu11", "-fsyntax-only", "-x", "c", "-"]);
    let mut compiler = compiler.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut compiler.stdin.take().unwrap(), text.as_bytes()).unwrap();
    let output = compiler.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
