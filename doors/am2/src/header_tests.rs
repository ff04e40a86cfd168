//! Comparison of the headers with the library: every function of the one is in the other,
//! with as many parameters.

use std::collections::BTreeMap;

const HEADERS: [&str; 3] = [
    include_str!("../include/am2.h"),
    include_str!("../include/ammpi.h"),
    include_str!("../include/ammpi_spmd.h"),
];

const SOURCES: [&str; 11] = [
    include_str!("bundle.rs"),
    include_str!("call.rs"),
    include_str!("endpoint.rs"),
    include_str!("get.rs"),
    include_str!("handler.rs"),
    include_str!("message.rs"),
    include_str!("process.rs"),
    include_str!("use_of_layer.rs"),
    include_str!("spmd.rs"),
    include_str!("statistics.rs"),
    include_str!("token.rs"),
];

const TABLE: &str = include_str!("translation.rs");
const NUMBERED: &str = include_str!("numbered.rs");

/// Number of parameters of a list, in which commas stand within brackets, too.
fn parameters(list: &str) -> usize {
    let (mut depth, mut count) = (0, 0);
    let list = list.trim().trim_end_matches(',');
    if list.is_empty() || list == "void" {
        return 0;
    }
    for letter in list.chars() {
        match letter {
            '(' | '<' | '[' => depth += 1,
            ')' | '>' | ']' => depth -= 1,
            ',' if depth == 0 => count += 1,
            _ => {}
        }
    }
    count + 1
}

/// The list after an opening parenthesis, up to its end.
fn within(text: &str) -> &str {
    let mut depth = 1;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 1 => return &text[..at],
            ')' => depth -= 1,
            _ => {}
        }
    }
    panic!("a list has no end: {text}");
}

fn functions_of_the_library() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for source in SOURCES.iter().chain([&TABLE]) {
        for part in source.split("#[unsafe(no_mangle)]").skip(1) {
            let Some((_, rest)) =
                part.split_once("extern \"C\" fn ").filter(|(head, _)| !head.contains(['{', ';']))
            else {
                continue;
            };
            let (name, rest) = rest.split_once('(').expect("parameters");
            found.insert(name.to_owned(), parameters(within(rest)));
        }
    }
    // Parameters before the arguments.
    let before = [3, 5, 6, 6, 2, 4, 5, 6, 6];
    let rows = NUMBERED.lines().filter(|line| line.trim_start().starts_with('[') && line.contains("AM_"));
    for row in rows {
        let (args, names) = row.trim().trim_end_matches(';').split_once(']').expect("a row of names");
        let count = args.trim_start_matches('[').split_whitespace().count();
        for (name, before) in names.split_whitespace().zip(before) {
            assert!(name.ends_with(&count.to_string()), "{name}");
            found.insert(name.to_owned(), before + count);
        }
    }
    found
}

fn declarations_of_the_headers() -> BTreeMap<String, usize> {
    let mut found = BTreeMap::new();
    for header in HEADERS {
        let mut code = String::new();
        let header = header.replace("\\\n", " ");
        for (n, part) in header.split("/*").enumerate() {
            code.push_str(if n == 0 { part } else { part.split_once("*/").expect("the comment's end").1 });
        }
        for statement in code.split(';') {
            let lines: Vec<&str> = statement.lines().filter(|line| !line.starts_with('#')).collect();
            let statement = lines.join(" ");
            let Some((head, list)) = statement.split_once('(') else { continue };
            let Some((kind, name)) = head.trim().rsplit_once([' ', '*']) else { continue };
            let is_declaration =
                ["int", "void", "const char"].iter().any(|start| kind.trim().ends_with(start));
            // Not those with a body, nor pointers to functions.
            if is_declaration && name.starts_with("AM") && !statement.contains('{') {
                found.insert(name.to_owned(), parameters(within(list)));
            }
        }
    }
    found
}

#[test]
fn headers_declare_the_functions_of_the_library() {
    let (library, header) = (functions_of_the_library(), declarations_of_the_headers());
    assert!(library.len() > 9 * 17 + 50, "only {} functions were found", library.len());
    for (name, count) in &library {
        assert_eq!(header.get(name), Some(count), "{name} in the headers");
    }
    for name in header.keys() {
        assert!(library.contains_key(name), "{name} is in the headers only");
    }
}

#[test]
fn headers_have_the_numbers_of_the_library() {
    use crate::bundle::*;
    use crate::call::{AM_OK, AmError};
    let numbers = [
        ("AM_OK", AM_OK),
        ("AM_ERR_NOT_INIT", AmError::NOT_INIT.0),
        ("AM_ERR_BAD_ARG", AmError::BAD_ARG.0),
        ("AM_ERR_RESOURCE", AmError::RESOURCE.0),
        ("AM_ERR_NOT_SENT", AmError::NOT_SENT.0),
        ("AM_ERR_IN_USE", AmError::IN_USE.0),
        ("AM_SEQ", AM_SEQ),
        ("AM_PAR", AM_PAR),
        ("AM_NUM_BUNDLE_MODES", AM_PAR + 1),
        ("AM_NUMEVENTMASKS", (AM_NOTEMPTY | AM_CANSEND) + 1),
        ("AM_NOEVENTS", AM_NOEVENTS),
        ("AM_NOTEMPTY", AM_NOTEMPTY),
        ("AM_CANSEND", AM_CANSEND),
        ("EBADARGS", towpath_am::Status::BadArguments as i32),
        ("EBADENTRY", towpath_am::Status::BadEntry as i32),
        ("EBADTAG", towpath_am::Status::BadTag as i32),
        ("EBADHANDLER", towpath_am::Status::BadHandler as i32),
        ("EBADSEGOFF", towpath_am::Status::BadSegmentOffset as i32),
        ("EBADLENGTH", towpath_am::Status::BadLength as i32),
        ("EBADENDPOINT", towpath_am::Status::BadEndpoint as i32),
        ("ECONGESTION", towpath_am::Status::QueueAbandoned as i32),
        ("EUNREACHABLE", towpath_am::Status::Unreachable as i32),
        ("EREPLYREJECTED", towpath_am::Status::ReplyRejected as i32),
        ("AM_REQUEST_M", crate::handler::opcode(towpath_am::Operation::RequestShort)),
        ("AM_REQUEST_IM", crate::handler::opcode(towpath_am::Operation::RequestMedium)),
        ("AM_REQUEST_XFER_M", crate::handler::opcode(towpath_am::Operation::RequestLong)),
        ("AM_REPLY_M", crate::handler::opcode(towpath_am::Operation::ReplyShort)),
        ("AM_REPLY_IM", crate::handler::opcode(towpath_am::Operation::ReplyMedium)),
        ("AM_REPLY_XFER_M", crate::handler::opcode(towpath_am::Operation::ReplyLong)),
        ("AM_GET_XFER_M", crate::get::OPCODE),
    ];
    for (name, number) in numbers {
        if let Some(status) = towpath_am::Status::from_bits(number as u64).filter(|_| name.starts_with('E')) {
            assert_eq!(crate::handler::word_of(status), name);
        }
        let line = format!("#define {name} {number}");
        let is_there = |l: &str| l == line || l.starts_with(&format!("{line} "));
        assert_eq!(HEADERS[0].lines().filter(|l| is_there(l)).count(), 1, "{line}");
    }
}

#[test]
fn constants_of_ammpi_are_those_of_the_functions() {
    use crate::call::AM_OK;
    use crate::use_of_layer::*;
    let layer = crate::call_tests::Layer::new();
    let (endpoint, _) = layer.endpoint();
    let (mut first, mut most) = (0, 0);
    crate::call_tests::ok!(crate::translation::AM_GetNumTranslations(Some(endpoint), &mut first));
    crate::call_tests::ok!(crate::translation::AM_MaxNumTranslations(&mut most));
    let numbers = [
        ("AMMPI_MAX_SHORT", AM_MaxShort()),
        ("AMMPI_MAX_MEDIUM", AM_MaxMedium()),
        ("AMMPI_MAX_LONG", AM_MaxLong()),
        ("AMMPI_MAX_NUMHANDLERS", crate::handler::AM_MaxNumHandlers()),
        ("AMMPI_INIT_NUMTRANSLATIONS", first),
        ("AMMPI_MAX_NUMTRANSLATIONS", most),
    ];
    for (name, number) in numbers {
        let line = format!("#define {name} {number}");
        assert_eq!(HEADERS[1].lines().filter(|l| *l == line).count(), 1, "{line}");
    }
}
