//! Parts of a type's definition, of which derives are made.

use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Reason why a type has no such derive, and the place in the source to show it at.
pub(crate) struct NotDerived {
    reason: String,
    at: Span,
}

impl NotDerived {
    pub fn new(reason: impl Into<String>, at: Span) -> Self {
        NotDerived { reason: reason.into(), at }
    }

    pub fn into_error(self) -> TokenStream {
        let error = tokens(&format!("::core::compile_error! {{ {:?} }}", self.reason));
        error
            .into_iter()
            .map(|mut token| {
                token.set_span(self.at);
                token
            })
            .collect()
    }
}

/// A field's name, if it has one, and its type.
pub(crate) struct Field {
    pub name: Option<String>,
    pub of: TokenStream,
    /// True if the field has the attribute `opaque`.
    pub is_opaque: bool,
}

pub(crate) fn tokens(text: &str) -> TokenStream {
    text.parse().expect("text of this file, and names")
}

pub(crate) fn is_ident(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

pub(crate) fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

pub(crate) fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

pub(crate) fn content(token: &TokenTree) -> Vec<TokenTree> {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Parts between commas outside all brackets, also pointed ones.
pub(crate) fn split_at_commas(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
    let (mut parts, mut begin, mut depth) = (Vec::new(), 0, 0usize);
    for (i, token) in tokens.iter().enumerate() {
        // The arrow of a function's type closes nothing.
        let is_arrow = i > 0 && is_punct(&tokens[i - 1], '-');
        if is_punct(token, '<') {
            depth += 1;
        } else if is_punct(token, '>') && !is_arrow {
            depth = depth.saturating_sub(1);
        } else if is_punct(token, ',') && depth == 0 {
            parts.push(&tokens[begin..i]);
            begin = i + 1;
        }
    }
    if begin < tokens.len() {
        parts.push(&tokens[begin..]);
    }
    parts
}

/// The tokens behind attributes and visibility.
pub(crate) fn behind_prefix(mut tokens: &[TokenTree]) -> &[TokenTree] {
    while let [hash, _, rest @ ..] = tokens
        && is_punct(hash, '#')
    {
        tokens = rest;
    }
    if let [first, rest @ ..] = tokens {
        let inside = content(first);
        // A visibility that a macro has put in.
        if is_group(first, Delimiter::None) && inside.first().is_none_or(|token| is_ident(token, "pub")) {
            return rest;
        }
        if is_ident(first, "pub") {
            let to =
                |token: &TokenTree| ["crate", "self", "super", "in"].iter().any(|to| is_ident(token, to));
            // `pub (u32, u32)` is a tuple that is public.
            return match rest {
                [group, rest @ ..] if content(group).first().is_some_and(to) => rest,
                rest => rest,
            };
        }
    }
    tokens
}

pub(crate) fn in_group(delimiter: Delimiter, stream: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(delimiter, stream))
}

/// The tokens between the pointed brackets behind a name, and those behind these.
pub(crate) fn split_generics(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
    if !tokens.first().is_some_and(|token| is_punct(token, '<')) {
        return (&[], tokens);
    }
    let mut depth = 0usize;
    for (i, token) in tokens.iter().enumerate() {
        if is_punct(token, '<') {
            depth += 1;
        } else if is_punct(token, '>') && !is_punct(&tokens[i - 1], '-') {
            depth -= 1;
            if depth == 0 {
                return (&tokens[1..i], &tokens[i + 1..]);
            }
        }
    }
    (&[], tokens)
}

/// A parameter of a type: as an implementation declares it, without a default, and as an
/// argument.
pub(crate) struct Parameter<'a> {
    pub declared: &'a [TokenTree],
    pub argument: &'a [TokenTree],
}

impl Parameter<'_> {
    pub fn is_const(&self) -> bool {
        is_ident(&self.declared[0], "const")
    }

    pub fn has_bounds(&self) -> bool {
        self.declared.iter().any(|token| is_punct(token, ':'))
    }
}

/// The parameters between the pointed brackets behind a name.
pub(crate) fn parameters(generics: &[TokenTree]) -> impl Iterator<Item = Parameter<'_>> {
    // Outside of pointed brackets: a bound may name an associated type.
    let until = |tokens: &[TokenTree], end| {
        let mut depth = 0usize;
        let ends = |token: &TokenTree| {
            if is_punct(token, '<') {
                depth += 1;
            } else if is_punct(token, '>') {
                depth = depth.saturating_sub(1);
            }
            depth == 0 && is_punct(token, end)
        };
        tokens.iter().position(ends).unwrap_or(tokens.len())
    };
    split_at_commas(generics).into_iter().filter(|parameter| !parameter.is_empty()).map(move |parameter| {
        let declared = &parameter[..until(parameter, '=')];
        let begin = usize::from(is_ident(&declared[0], "const"));
        Parameter { declared, argument: &declared[begin..until(declared, ':')] }
    })
}

/// The parameters behind a name, as an implementation declares them, and as arguments.
pub(crate) fn declared_and_arguments(generics: &[TokenTree]) -> (TokenStream, TokenStream) {
    let (mut declared, mut arguments) = (TokenStream::new(), TokenStream::new());
    for parameter in parameters(generics) {
        declared.extend(parameter.declared.iter().cloned().chain(tokens(",")));
        arguments.extend(parameter.argument.iter().cloned().chain(tokens(",")));
    }
    (declared, arguments)
}

/// The fields between braces.
pub(crate) fn named(fields: &[TokenTree]) -> Result<Vec<Field>, NotDerived> {
    split_at_commas(fields)
        .into_iter()
        .map(|field| match behind_prefix(field) {
            [name, colon, of @ ..] if is_punct(colon, ':') => Ok(Field {
                name: Some(name.to_string()),
                of: of.iter().cloned().collect(),
                is_opaque: is_opaque(field),
            }),
            other => {
                let at = other.first().map_or(Span::call_site(), TokenTree::span);
                Err(NotDerived::new("a field is a name, a colon and a type", at))
            }
        })
        .collect()
}

/// The fields between parentheses.
pub(crate) fn unnamed(fields: &[TokenTree]) -> Vec<Field> {
    let of = |field| behind_prefix(field).iter().cloned().collect();
    let field = |field| Field { name: None, of: of(field), is_opaque: is_opaque(field) };
    split_at_commas(fields).into_iter().map(field).collect()
}

/// Returns whether a field has the attribute `opaque`.
fn is_opaque(field: &[TokenTree]) -> bool {
    let is_it = |pair: &[TokenTree]| {
        is_punct(&pair[0], '#') && content(&pair[1]).first().is_some_and(|token| is_ident(token, "opaque"))
    };
    field.windows(2).any(is_it)
}
