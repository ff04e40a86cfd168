//! Comparison of the header with the library: declarations, signatures, errors.
//!
//! No tool writes the header: it is prose as much as declarations, and is read by people. So a test
//! compares the two, which needs neither a generator nor a compiler for C.

use std::collections::BTreeMap;

use towpath_c::fault::Fault;

const HEADER: &str = include_str!("../../include/towpath.h");

const SOURCES: &[&str] = &[
    include_str!("../../src/barrier.rs"),
    include_str!("../../src/broadcast.rs"),
    include_str!("../../src/condition.rs"),
    include_str!("../../src/endpoint.rs"),
    include_str!("../../src/event.rs"),
    include_str!("../../src/fault.rs"),
    include_str!("../../src/messages.rs"),
    include_str!("../../src/mutex.rs"),
    include_str!("../../src/queue.rs"),
    include_str!("../../src/rw_lock.rs"),
    include_str!("../../src/semaphore.rs"),
    include_str!("../../src/structures.rs"),
    include_str!("../../src/world.rs"),
];

/// Types of the parameters, and of the result.
type Signature = (Vec<String>, String);

/// Text without runs of spaces.
fn squeezed(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The C type of a type of Rust's.
fn c_type(rust: &str) -> String {
    let plain = rust.replace("'_, ", "").replace("core::ffi::", "");
    let handle = |name: &str| format!("tp_{}", name.trim_start_matches("Tp").to_lowercase());
    let within = |front: &str| plain.strip_prefix(front).and_then(|rest| rest.strip_suffix('>'));
    match plain.as_str() {
        "" | "()" => return "void".into(),
        "c_int" => return "int".into(),
        "u8" => return "uint8_t".into(),
        "u32" => return "uint32_t".into(),
        "*const u32" => return "const uint32_t *".into(),
        "TpHandler" => return "tp_handler".into(),
        "u64" => return "uint64_t".into(),
        "usize" => return "size_t".into(),
        "*mut u64" => return "uint64_t *".into(),
        "*mut c_void" => return "void *".into(),
        "*const c_void" => return "const void *".into(),
        "*const c_char" => return "const char *".into(),
        _ => {}
    }
    if let Some(name) = within("Handle<").or(within("Owned<")).or(within("Option<&mut ")) {
        return format!("{} *", handle(name));
    }
    if let Some(name) = within("Out<") {
        return format!("{} **", handle(name));
    }
    if let Some(inner) = within("OutValue<") {
        let of = if inner.starts_with("Tp") { handle(inner) } else { c_type(inner) };
        return if of.ends_with('*') { format!("{of}*") } else { format!("{of} *") };
    }
    panic!("no C type for {rust}")
}

fn functions_of_the_library() -> BTreeMap<String, Signature> {
    let mut found = BTreeMap::new();
    for source in SOURCES {
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            let head = squeezed(part.split_once('{').expect("a body").0);
            let (_, rest) = head.split_once("extern \"C\" fn ").expect("a function of C's kind");
            let (name, rest) = rest.split_once('(').expect("parameters");
            let (parameters, result) = rest.rsplit_once(')').expect("parameters");
            let types = parameters.split(", ").fold(Vec::<String>::new(), |mut types, next| {
                // A comma within a type's parameters is none of ours.
                match types.last_mut() {
                    Some(last) if last.matches('<').count() > last.matches('>').count() => {
                        *last = format!("{last}, {next}");
                    }
                    _ => types.push(next.trim_end_matches(',').to_owned()),
                }
                types
            });
            let types = types.iter().filter(|parameter| !parameter.is_empty());
            let types = types.map(|p| c_type(p.split_once(": ").expect("a type").1.trim_end_matches(',')));
            let result = c_type(result.trim().trim_start_matches("-> "));
            found.insert(name.to_owned(), (types.collect(), result));
        }
    }
    found
}

fn declarations_of_the_header() -> BTreeMap<String, Signature> {
    let mut code = String::new();
    for (n, part) in HEADER.split("/*").enumerate() {
        code.push_str(if n == 0 { part } else { part.split_once("*/").expect("the comment's end").1 });
    }
    let code: String =
        code.lines().filter(|line| !line.starts_with('#')).fold(String::new(), |all, line| all + line + " ");
    let mut found = BTreeMap::new();
    for statement in code.split(';').map(squeezed).filter(|text| !text.starts_with("typedef")) {
        let Some((head, parameters)) = statement.rsplit_once('(') else { continue };
        let Some(at) = head.rfind("tp_") else { continue };
        let (result, name) = head.split_at(at);
        let result = result.rsplit('}').next().unwrap_or(result).replace("extern \"C\" {", "");
        let parameters = parameters.trim_end_matches(')');
        let types = parameters.split(", ").filter(|parameter| *parameter != "void").map(|parameter| {
            let end = parameter.rfind([' ', '*']).expect("a name after the type") + 1;
            parameter[..end].trim().to_owned()
        });
        found.insert(name.to_owned(), (types.collect(), result.trim().to_owned()));
    }
    found
}

#[test]
fn header_declares_the_functions_of_the_library() {
    let (library, header) = (functions_of_the_library(), declarations_of_the_header());
    assert!(library.len() > 90, "only {} functions were found", library.len());
    for (name, signature) in &library {
        assert_eq!(header.get(name), Some(signature), "{name} in towpath.h");
    }
    for name in header.keys() {
        assert!(library.contains_key(name), "{name} is in towpath.h only");
    }
}

#[test]
fn header_has_the_errors_of_the_library() {
    let line = |text: &str| HEADER.lines().filter(|line| line.trim_start().starts_with(text)).count();
    for (name, number) in Fault::ALL {
        let with_comma = line(&format!("TP_E{name} = {number},"));
        assert_eq!(with_comma + line(&format!("TP_E{name} = {number} ")), 1, "TP_E{name}");
    }
    assert_eq!(line("TP_E"), Fault::ALL.len());
}
