//! Nodes and services: a server gives its endpoint the name of a service, and a client
//! finds it there.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::ptr::{null, null_mut};
use std::rc::Rc;

use super::support::*;
use sys::*;

const NO_DATA: c_int = -(FI_ENODATA as c_int);

/// A name that no other test has.
fn service(of: &str) -> String {
    format!("{of} {}", std::process::id())
}

/// Hints as of other tests.
fn plain(hints: &mut fi_info) {
    hints.caps = ALL;
}

fn as_text(hints: &mut fi_info) {
    hints.caps = ALL;
    hints.addr_format = FI_ADDR_STR;
}

fn source(service: &str) -> Result<Info, c_int> {
    Info::named(None, Some(service), FI_SOURCE, plain)
}

fn destination(node: Option<&str>, service: &str) -> Result<Info, c_int> {
    Info::named(node, Some(service), 0, plain)
}

/// An endpoint that is to have the service, and is not enabled yet.
fn server(service: &str) -> Node {
    let options = Options::default();
    Node::bound(&Home::of(source(service).expect("a source address"), &options), &options)
}

/// The endpoint's address that a client finds.
fn found(info: &Info) -> [u8; NAME] {
    // SAFETY: libfabric filled it in; an address of ours is as long.
    unsafe {
        assert_eq!((*info.0).dest_addrlen, NAME);
        assert!(!(*info.0).dest_addr.is_null());
        (*info.0).dest_addr.cast::<[u8; NAME]>().read()
    }
}

#[test]
fn service_of_an_enabled_endpoint_is_found_and_sent_to() {
    let name = service("a service");
    assert_eq!(destination(None, &name).err(), Some(NO_DATA), "there is no server");
    let server = server(&name);
    assert_eq!(destination(None, &name).err(), Some(NO_DATA), "it is not enabled");
    assert_eq!((server.enable(), server.enable()), (0, 0), "a second time changes nothing");
    let options = Options::default();
    let info = destination(Some("localhost"), &name).expect("the server");
    let address = found(&info);
    assert_eq!(address, server.name());
    let mut client = Node::new(&Home::of(info, &options), &options);
    client.meet(&address);
    let nodes = [server, client];
    let mut into = [0; 5];
    assert_eq!(nodes[0].receive(ANY, Some((7, 0)), &mut into, 1), 0);
    start(&nodes, || nodes[1].send(nodes[1].peers[0], Some(7), b"hello", 2));
    assert_eq!((received(&nodes, 0).len, &into), (5, b"hello"));
}

#[test]
fn service_is_one_endpoints_until_it_is_closed() {
    let name = service("an exclusive service");
    let (first, second) = (server(&name), server(&name));
    assert_eq!((first.enable(), second.enable()), (0, -(FI_EADDRINUSE as c_int)));
    assert_eq!(found(&destination(None, &name).expect("the first")), first.name());
    drop(first);
    assert_eq!(destination(None, &name).err(), Some(NO_DATA));
    assert_eq!(second.enable(), 0, "it is free again");
    assert_eq!(found(&destination(None, &name).expect("the second")), second.name());
}

#[test]
fn names_of_this_host_are_this_host_and_others_are_none() {
    let name = service("a service of this host");
    let server = server(&name);
    assert_eq!(server.enable(), 0);
    let own = rustix_hostname();
    for node in ["localhost", "127.0.0.1", "127.0.0.2", "::1", "[::1]", "0.0.0.0", &own] {
        assert_eq!(found(&destination(Some(node), &name).expect(node)), server.name(), "{node}");
    }
    for node in ["192.0.2.1", "2001:db8::1", "fe80::1%lo"] {
        assert_eq!(destination(Some(node), &name).err(), Some(NO_DATA), "{node}");
        let source = Info::named(Some(node), Some(&name), FI_SOURCE, plain);
        assert_eq!(source.err(), Some(NO_DATA), "{node}");
    }
    // A number is asked for.
    let numeric = |node| Info::named(Some(node), Some(&name), FI_NUMERICHOST, plain);
    assert_eq!(found(&numeric("127.0.0.1").expect("a number")), server.name());
    assert_eq!(numeric("localhost").err(), Some(NO_DATA));
    // As text.
    let text = |text: &str| Info::named(Some(text), None, 0, plain);
    assert_eq!(found(&text(&format!("towpath://localhost:{name}")).expect("a text")), server.name());
    for wrong in ["towpath://192.0.2.1:1", "fi_sockaddr://127.0.0.1:1", "towpath://localhost:unknown"] {
        assert_eq!(text(wrong).err(), Some(NO_DATA), "{wrong}");
    }
    assert!(Info::named(Some("towpath://localhost"), Some(&name), 0, plain).is_err(), "text and service");
}

fn rustix_hostname() -> String {
    let mut name = [0 as c_char; 256];
    // SAFETY: as many bytes of space as is said; the last one stays zero.
    unsafe {
        assert_eq!(libc::gethostname(name.as_mut_ptr(), name.len() - 1), 0);
        CStr::from_ptr(name.as_ptr()).to_str().expect("in ASCII").to_owned()
    }
}

#[test]
fn names_that_say_too_little_or_too_much_are_refused() {
    let long = "x".repeat(49);
    assert_eq!(source(&long).err(), Some(NO_DATA), "a name that is too long");
    assert_eq!(destination(None, &long).err(), Some(NO_DATA));
    assert_eq!(Info::named(Some("localhost"), None, 0, plain).err(), Some(NO_DATA), "which endpoint there?");
    assert!(Info::named(None, None, FI_SOURCE, plain).is_err(), "the source of what?");
    // An endpoint somewhere on this host, as without a name.
    let info = Info::named(Some("localhost"), None, FI_SOURCE, plain).expect("a source without a service");
    // SAFETY: libfabric filled it in.
    unsafe { assert!(!(*info.0).src_addr.is_null() && (*info.0).src_addrlen == NAME) };
    let options = Options::default();
    drop(Node::new(&Home::of(info, &options), &options));
}

#[test]
fn addresses_are_found_when_names_are_asked_for_and_only_then() {
    let name = service("a service with addresses");
    let server = server(&name);
    assert_eq!(server.enable(), 0);
    // SAFETY: what libfabric filled in, here and below.
    let ends = |info: &Info| unsafe { [!(*info.0).src_addr.is_null(), !(*info.0).dest_addr.is_null()] };
    assert_eq!(ends(&Info::asked(plain).expect("offered")), [false, false]);
    assert_eq!(ends(&source(&name).expect("a source")), [true, false]);
    assert_eq!(ends(&destination(None, &name).expect("a destination")), [true, true]);
    // Addresses in the hints: the destination counts if no name gives one.
    let hinted = |flags, service, bytes: [u8; NAME]| {
        Info::named(None, service, flags, |hints| {
            plain(hints);
            // SAFETY: new memory of that length, which libfabric frees with the hints.
            unsafe {
                hints.dest_addr = libc::malloc(NAME);
                hints.dest_addr.cast::<[u8; NAME]>().write(bytes);
            }
            hints.dest_addrlen = NAME;
        })
    };
    assert_eq!(found(&hinted(0, None, server.name()).expect("an address")), server.name());
    assert_eq!(found(&hinted(FI_SOURCE, Some("x"), server.name()).expect("an address")), server.name());
    assert_eq!(found(&hinted(0, Some(&name), [7; NAME]).expect("a name")), server.name());
    assert_eq!(hinted(0, None, [7; NAME]).err(), Some(NO_DATA));
}

#[test]
fn addresses_as_text_do_what_bytes_do() {
    let (name, options) = (service("a service as text"), Options::default());
    let home = |info| Home::of(info, &options);
    let info = Info::named(None, Some(&name), FI_SOURCE, as_text).expect("a source address");
    // SAFETY: libfabric filled it in, with a text as long as is said.
    unsafe {
        assert_eq!((*info.0).addr_format, FI_ADDR_STR);
        let text = CStr::from_ptr((*info.0).src_addr.cast());
        assert_eq!(text.to_str(), Ok(&format!("towpath://localhost:{name}")[..]));
        assert_eq!((*info.0).src_addrlen, text.count_bytes() + 1);
    }
    let server = Node::new(&home(info), &options);
    let info = Info::named(None, Some(&name), 0, as_text).expect("the server");
    // SAFETY: libfabric filled it in, with a text that ends with zero.
    let address = unsafe { CStr::from_ptr((*info.0).dest_addr.cast()).to_owned() };
    assert_eq!(own_text(&server), address);
    let mut client = Node::new(&home(info), &options);
    // By the address, by the service, and what is neither.
    let by_service = CString::new(format!("towpath://:{name}")).expect("no zero byte");
    let texts = [address.as_ptr(), by_service.as_ptr(), c"nonsense".as_ptr(), null()];
    let (mut numbers, mut errors) = ([9; 4], [9 as c_int; 4]);
    // SAFETY: four texts, and places for as many numbers and errors.
    let inserted = unsafe {
        let (at, context) = (texts.as_ptr().cast::<c_void>(), errors.as_mut_ptr().cast());
        call!(client.av, ops, insert, at, 4, numbers.as_mut_ptr(), FI_SYNC_ERR_, context)
    };
    assert_eq!((inserted, numbers), (2, [0, 1, ANY, ANY]));
    assert_eq!((errors[0], errors[1], errors[2] > 0, errors[3] > 0), (0, 0, true, true));
    let (mut text, mut len) = ([1 as c_char; 300], 300);
    // SAFETY: places as long as is said.
    unsafe {
        assert_eq!(call!(client.av, ops, lookup, 1, text.as_mut_ptr().cast(), &raw mut len), 0);
        assert_eq!((CStr::from_ptr(text.as_ptr()), len), (&*address, address.count_bytes() + 1));
        let shown = call!(client.av, ops, straddr, address.as_ptr().cast(), text.as_mut_ptr(), &raw mut len);
        assert_eq!(CStr::from_ptr(shown), &*address);
    }
    client.peers.push(numbers[0]);
    let nodes = [server, client];
    let mut into = [0; 8];
    assert_eq!(nodes[0].receive(ANY, None, &mut into, 1), 0);
    start(&nodes, || nodes[1].send(nodes[1].peers[0], None, &[3; 8], 2));
    assert_eq!((received(&nodes, 0).context, into), (1, [3; 8]));
}

const FI_SYNC_ERR_: u64 = 1 << 58;

/// `fi_getname` where addresses are text.
fn own_text(node: &Node) -> CString {
    let (mut text, mut len) = ([1 as c_char; 300], 10);
    // SAFETY: places as long as is said.
    unsafe {
        let getname = (*(*node.ep).cm).getname.expect("no table has holes");
        let (ep, at) = (node.ep.cast(), text.as_mut_ptr().cast());
        assert_eq!(getname(ep, at, &raw mut len), -(FI_ETOOSMALL as c_int), "cut, and told how long it is");
        assert_eq!(CStr::from_ptr(text.as_ptr()), c"towpath:/");
        assert_eq!(getname(ep, at, &raw mut len), 0);
        let text = CStr::from_ptr(text.as_ptr()).to_owned();
        assert_eq!(len, text.count_bytes() + 1);
        text
    }
}

#[test]
fn service_is_inserted_by_its_name() {
    let (name, options) = (service("an inserted service"), Options::default());
    let server = server(&name);
    assert_eq!(server.enable(), 0);
    let client = Node::new(&Home::new(&options), &options);
    let [known, unknown] = [&name[..], "unknown"].map(|name| CString::new(name).expect("no zero byte"));
    let insert = |node: *const c_char, service: *const c_char, number: &mut fi_addr_t| {
        // SAFETY: names, and a place for a number.
        unsafe { call!(client.av, ops, insertsvc, node, service, number, 0, null_mut()) }
    };
    let mut number = 9;
    assert_eq!((insert(c"localhost".as_ptr(), known.as_ptr(), &mut number), number), (1, 0));
    assert_eq!((insert(null(), unknown.as_ptr(), &mut number), number), (0, ANY));
    assert_eq!((insert(c"192.0.2.1".as_ptr(), known.as_ptr(), &mut number), number), (0, ANY));
    assert_eq!(insert(null(), null(), &mut number), -(FI_EINVAL as c_int));
    let nodes = [server, client];
    let mut into = [0; 8];
    assert_eq!(nodes[0].receive(ANY, None, &mut into, 1), 0);
    start(&nodes, || nodes[1].send(0, None, &[3; 8], 2));
    assert_eq!((received(&nodes, 0).context, into), (1, [3; 8]));
}

#[test]
fn endpoint_with_an_address_that_is_not_its_own_is_refused() {
    let options = Options::default();
    let home = Home::new(&options);
    let other = Node::new(&home, &options);
    let (name, mut ep) = (other.name(), null_mut());
    for (address, len, error) in
        [(name, NAME, FI_EADDRNOTAVAIL), ([7; NAME], NAME, FI_EADDRNOTAVAIL), (name, 3, FI_EINVAL)]
    {
        // SAFETY: a shallow copy of what libfabric filled in, with an address as long as is said.
        let result = unsafe {
            let mut info = home.info.0.read();
            (info.src_addr, info.src_addrlen) = (address.as_ptr().cast_mut().cast(), len);
            call!(home.domain, ops, endpoint, &raw mut info, &raw mut ep, null_mut())
        };
        assert_eq!(result, -(error as c_int));
    }
    drop(other);
    assert_eq!(Rc::strong_count(&home), 1);
}
