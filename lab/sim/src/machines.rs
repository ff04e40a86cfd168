//! The machines that come with Towpath, and users' own: files of parameters.
//!
//! A file is TOML. A value stands alone (`hop = "50ns"`) or with its source (`hop = { value =
//! "50ns", source = "D A2.2" }`); keys are the names of [`Parameters::describe`], in tables or with
//! dots. `name` and `title` say what it is; `like = "origin2000"` begins with another machine's
//! values.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::parameters::{ParameterError, Parameters, Value, ValueSource};

/// The machines that come with Towpath, and their files.
const FILES: [(&str, &str); 9] = [
    ("enterprise5000", include_str!("machines/enterprise5000.toml")),
    ("origin2000", include_str!("machines/origin2000.toml")),
    ("sx4", include_str!("machines/sx4.toml")),
    ("paradigm", include_str!("machines/paradigm.toml")),
    ("avalanche", include_str!("machines/avalanche.toml")),
    ("avalanche-slow", include_str!("machines/avalanche-slow.toml")),
    ("rdma-cluster", include_str!("machines/rdma-cluster.toml")),
    ("epyc-milan", include_str!("machines/epyc-milan.toml")),
    ("graviton3", include_str!("machines/graviton3.toml")),
];

/// Error in a machine's file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}{}{what}", line.map(|l| format!(", line {l}: ")).unwrap_or(": ".into()))]
pub struct FileError {
    /// The file's name.
    pub file: String,
    /// The line, from 1, if it is one line's fault.
    pub line: Option<usize>,
    /// The error, and the remedy.
    pub what: String,
}

/// The names of the machines that come with Towpath.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|(name, _)| *name)
}

/// A machine that comes with Towpath.
pub fn by_name(name: &str) -> Option<Parameters> {
    let (name, text) = FILES.iter().find(|(n, _)| *n == name)?;
    match from_text(&format!("{name}.toml"), text) {
        Ok(parameters) => Some(parameters),
        Err(error) => panic!("a machine that comes with Towpath: {error}"),
    }
}

/// Reads a machine's file. `file` is its name, for errors and for a machine that has none
/// of its own.
///
/// # Errors
///
/// Names the line and the key.
pub fn from_text(file: &str, text: &str) -> Result<Parameters, FileError> {
    let line_of = |offset: usize| text.bytes().take(offset).filter(|&b| b == b'\n').count() + 1;
    let error =
        |at: Option<usize>, what: String| FileError { file: file.into(), line: at.map(line_of), what };
    let table = DeTable::parse(text)
        .map_err(|e| error(e.span().map(|s| s.start), e.message().trim_end_matches('\n').to_owned()))?;
    let table = table.into_inner();
    let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".toml");
    let mut parameters = Parameters::empty(stem);
    let string = |key: &str| -> Result<Option<(String, usize)>, FileError> {
        match table.get(key) {
            None => Ok(None),
            Some(value) => match value.get_ref() {
                DeValue::String(s) if s.chars().any(char::is_control) => {
                    Err(error(Some(value.span().start), format!("`{key}` is one line of printable text")))
                }
                DeValue::String(s) => Ok(Some((s.to_string(), value.span().start))),
                _ => Err(error(Some(value.span().start), format!("`{key}` is a text in quotation marks"))),
            },
        }
    };
    if let Some((like, at)) = string("like")? {
        let all: Vec<&str> = names().collect();
        parameters = by_name(&like).filter(|p| p.name != stem).ok_or_else(|| {
            error(Some(at), format!("no machine is called `{like}`; there are {}", all.join(", ")))
        })?;
        parameters.name = stem.into();
    }
    if let Some((name, _)) = string("name")? {
        parameters.name = name;
    }
    if let Some((title, _)) = string("title")? {
        parameters.title = title;
    }
    let mut places = Vec::new();
    for (key, value) in
        table.iter().filter(|(k, _)| !["name", "title", "like"].contains(&k.get_ref().as_ref()))
    {
        set_all(&mut parameters, key.get_ref(), key.span().start, value, &error, &mut places)?;
    }
    let missing = parameters.missing();
    if !missing.is_empty() {
        return Err(error(None, format!("these parameters have no value: {}", missing.join(", "))));
    }
    parameters.check().map_err(|e| {
        // The line of a key that the error is about, of several the last one.
        let what = e.to_string();
        let at = places.iter().filter(|(name, _)| what.contains(&format!("`{name}`"))).map(|p| p.1).max();
        error(at, what)
    })?;
    Ok(parameters)
}

/// Sets a key's value: a parameter, or a table of them.
fn set_all(
    parameters: &mut Parameters,
    name: &str,
    at: usize,
    value: &Spanned<DeValue<'_>>,
    error: &impl Fn(Option<usize>, String) -> FileError,
    places: &mut Vec<(String, usize)>,
) -> Result<(), FileError> {
    let (value, source) = match value.get_ref() {
        DeValue::Table(table) if table.get("value").is_none() => {
            for (key, value) in table.iter() {
                let name = format!("{name}.{}", key.get_ref());
                set_all(parameters, &name, key.span().start, value, error, places)?;
            }
            return Ok(());
        }
        DeValue::Table(table) => {
            if let Some((key, _)) =
                table.iter().find(|(k, _)| !["value", "source"].contains(&k.get_ref().as_ref()))
            {
                let what = format!("`{name}` has a `value` and a `source`, but no `{}`", key.get_ref());
                return Err(error(Some(key.span().start), what));
            }
            let source = match table.get("source").map(|s| s.get_ref()) {
                Some(DeValue::String(s)) => s.to_string(),
                None => "user".into(),
                Some(_) => {
                    return Err(error(
                        Some(at),
                        format!("the source of `{name}` is a text in quotation marks"),
                    ));
                }
            };
            (table.get("value").map_or(value.get_ref(), |v| v.get_ref()), source)
        }
        other => (other, "user".into()),
    };
    let value = match value {
        DeValue::String(s) => Value::Text(s.to_string()),
        DeValue::Integer(n) => match u64::from_str_radix(n.as_str(), n.radix()) {
            Ok(n) => Value::Number(n),
            Err(_) => return Err(error(Some(at), format!("`{name}` can't be {}", n.as_str()))),
        },
        other => Value::Text(other.type_str().into()),
    };
    places.push((name.to_owned(), at));
    parameters
        .set(name, &value, ValueSource(source))
        .map_err(|e: ParameterError| error(Some(at), e.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_machines_are_whole_and_every_value_has_a_source() {
        for name in names() {
            let machine = by_name(name).unwrap();
            assert_eq!(machine.name, name);
            for parameter in machine.describe() {
                let mark = parameter.source.0.split(' ').next().unwrap_or("");
                assert!(["S", "P", "R", "D", "E", ""].contains(&mark), "{name}: {parameter:?}");
            }
        }
    }

    #[test]
    fn errors_name_the_line_and_the_key() {
        let error = |text: &str| from_text("my.toml", text).unwrap_err().to_string();
        let like = "like = \"origin2000\"\n";
        assert_eq!(
            error(&format!("{like}[network]\nhops = \"1ns\"\n")),
            "my.toml, line 3: no parameter is called `network.hops`: do you mean `network.hop`?"
        );
        assert!(
            error(&format!("{like}\nnetwork.hop = 50\n"))
                .starts_with("my.toml, line 3: `network.hop` is a time")
        );
        assert!(
            error(&format!("{like}network.hop = {{ value = \"1ns\", sauce = 1 }}\n")).contains("no `sauce`")
        );
        assert!(error("like = \"origin\"").contains("there are enterprise5000, origin2000"));
        assert!(error("title = 3").contains("line 1: `title` is a text"));
        assert!(error("name = \"a\\u001b[31m\"").contains("line 1: `name` is one line of printable text"));
        assert!(error("title = \"a\\nb\"").contains("line 1: `title` is one line of printable text"));
        assert!(error("a = [").starts_with("my.toml, line 1: "));
        assert!(error("fabric = \"bus\"\n").contains("these parameters have no value: processor.count"));
        assert!(error(&format!("{like}processor.count = 5000")).contains("1 to 1024"));
        assert!(
            error(&format!("{like}processor.count = -5")).contains("line 2: `processor.count` can't be -5")
        );
        assert!(error(&format!("{like}cache.line = 100")).contains("power of two"));
        assert!(error(&format!("{like}network.hop = true")).contains("not `boolean`"));
    }

    #[test]
    fn a_users_machine_begins_with_ours() {
        let text = "like = \"origin2000\"\ntitle = \"slow\"\nnetwork.hop = \"100ns\"";
        let slow = from_text("dir/slow.toml", text).unwrap();
        assert_eq!((slow.name.as_str(), slow.hop), ("slow", 100_000));
        let hop = slow.describe().into_iter().find(|p| p.name == "network.hop").unwrap();
        assert_eq!((hop.value.as_str(), hop.source.0.as_str()), ("100ns", "user"));
    }
}
