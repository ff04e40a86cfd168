//! Picture of the locks for which threads have waited: a page with a drawing and a table.
//!
//! For each lock a bar of the time that threads have waited for it, in the parts of its call sites;
//! below it the classes of its waits by their time, darker with more of them.

use core::ffi::c_int;

use crate::hot::{self, CLASSES, HotLock, SITES, longest_of};
use crate::named_place::NamedPlace;
use crate::text::{Escaped, TextWriter, TimeText};

/// Styles of the laboratory's report.
const STYLE: &str = include_str!("../../../lab/report/src/style.css");

/// Width of the drawing, in its own units, and of its longest bar.
const WIDTH: f64 = 860.0;
const LONGEST: f64 = 740.0;
/// Height of a lock's part, of its bar, and of its classes.
const PART: f64 = 92.0;
const BAR: f64 = 18.0;
const CLASS: f64 = 12.0;
/// Width of a class.
const CLASS_WIDTH: f64 = LONGEST / CLASSES as f64;
/// Height above the first lock.
const TOP: f64 = 46.0;

/// Adds a line to a page.
macro_rules! put {
    ($page:expr, $($text:tt)*) => {
        $page.put(format_args!("{}\n", format_args!($($text)*)))
    };
}

/// Draws the page on a descriptor.
pub fn draw(descriptor: c_int) {
    let page = &mut TextWriter::new(descriptor);
    put!(
        page,
        r#"<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Locks of a program</title>"#
    );
    put!(page, "<style>{STYLE}</style></head><body><main><h1>Locks of a program</h1>");
    let (mut locks, mut most) = (0, 0);
    hot::each_hot(|lock| {
        most = most.max(lock.waits().total);
        locks += 1;
    });
    if locks == 0 {
        put!(page, "<p>No thread has waited for a lock.</p>");
    } else {
        put_drawing(page, locks, most);
        put_table(page);
    }
    put!(page, "</main></body></html>");
    page.flush();
}

fn put_drawing(page: &mut TextWriter, locks: u32, most: u64) {
    let height = TOP + PART * f64::from(locks);
    let title = "Time that threads have waited for each lock, by call site";
    put!(page, r#"<figure><svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{title}">"#);
    put!(page, r#"<text class="title" x="0" y="16">{title}</text>"#);
    for class in 0..CLASSES {
        let x = (class as f64 + 0.5) * CLASS_WIDTH;
        let (sign, end) = if class + 1 < CLASSES { ("&lt;", class) } else { ("≥", class - 1) };
        let time = TimeText(longest_of(end));
        put!(page, r#"<text class="tick" x="{x:.1}" y="36" text-anchor="middle">{sign} {time}</text>"#);
    }
    let mut top = TOP;
    hot::each_hot(|lock| {
        put_lock(page, lock, top, most);
        top += PART;
    });
    put!(page, "</svg></figure>");
    put!(
        page,
        r#"<p class="note">Below each bar: waits by their time, darker where there are more. The last part of a bar stands for further call sites, and for those that are not known.</p>"#
    );
}

/// A lock's bar and its classes.
fn put_lock(page: &mut TextWriter, lock: &HotLock, top: f64, most: u64) {
    let (place, holders) = (NamedPlace::of(lock.address(), true), lock.holders());
    let place = Escaped(format_args!("{place:#}"));
    put!(page, r#"<text class="label" x="0" y="{:.1}">{place}</text>"#, top + 12.0);
    put!(page, r#"<text class="tick" x="0" y="{:.1}">{holders}</text>"#, top + 28.0);
    let (mut x, mut site) = (0.0, 0);
    lock.each_site(|address, figures| {
        let (width, y) = (LONGEST * figures.total as f64 / most as f64, top + 34.0);
        put!(page, r#"<g class="c{}"><title>{}: {figures}</title>"#, site % SITES, SiteName(address));
        put!(page, r#"<rect class="bar" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{BAR}"/></g>"#);
        x += width;
        site += 1;
    });
    let all = TimeText(lock.waits().total);
    put!(page, r#"<text class="value" x="{:.1}" y="{:.1}">{all}</text>"#, x + 8.0, top + 47.0);
    let classes = lock.classes();
    let fullest = classes.iter().max().copied().unwrap_or(0).max(1);
    for (class, count) in classes.iter().enumerate().filter(|(_, count)| **count > 0) {
        // Rare ones are to be seen, too.
        let shade = 0.15 + 0.85 * (*count as f64 / fullest as f64).sqrt();
        let (x, y, width) = (class as f64 * CLASS_WIDTH, top + 38.0 + BAR, CLASS_WIDTH - 2.0);
        put!(
            page,
            r#"<g class="c0"><title>{count} waits</title><rect class="mark" style="opacity:{shade:.2}""#
        );
        put!(page, r#" x="{x:.1}" y="{y:.1}" width="{width:.1}" height="{CLASS}"/></g>"#);
    }
}

/// Name of a call site; 0: of several.
struct SiteName(usize);

impl core::fmt::Display for SiteName {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            0 => f.write_str("other places"),
            address => Escaped(NamedPlace::of(address, false)).fmt(f),
        }
    }
}

fn put_table(page: &mut TextWriter) {
    put!(page, r#"<div class="wide"><table><thead><tr>"#);
    for name in [
        "lock, and call sites",
        "waits",
        "waited",
        "longest",
        "acquisitions",
        "hand-overs",
        "holders preempted",
        "holders asleep",
    ] {
        put!(page, r#"<th scope="col">{name}</th>"#);
    }
    put!(page, "</tr></thead><tbody>");
    hot::each_hot(|lock| {
        let (place, waits, holders) = (NamedPlace::of(lock.address(), true), lock.waits(), lock.holders());
        put!(page, "<tr><td><b>{}</b></td><td>{}</td>", Escaped(place), waits.waits);
        put!(page, "<td>{}</td><td>{}</td>", TimeText(waits.total), TimeText(waits.longest));
        for count in [holders.acquisitions, holders.hand_overs, holders.preempted, holders.slept] {
            put!(page, "<td>{count}</td>");
        }
        put!(page, "</tr>");
        lock.each_site(|address, waits| {
            put!(page, "<tr><td>from {}</td><td>{}</td>", SiteName(address), waits.waits);
            let [all, longest] = [waits.total, waits.longest].map(TimeText);
            put!(page, r#"<td>{all}</td><td>{longest}</td><td colspan="4"></td></tr>"#);
        });
    });
    put!(page, "</tbody></table></div>");
    put!(
        page,
        r#"<p class="note">Acquisitions since a thread has first waited for the lock. Hand-overs: by another thread than the last holder. Holders preempted: those that lost their core without asking for it before they released; asleep: those that slept in the system meanwhile.</p>"#
    );
}
