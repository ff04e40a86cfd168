//! `#[derive(Plain)]` of the crate `towpath`, which exports it.
//!
//! Written over `proc_macro` alone: a program that uses it compiles no parser of Rust.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Implements `Plain` and `Object` for a structure of plain fields.
///
/// Its values may lie in shared memory: under a lock, or in a queue.
///
/// The structure is `#[repr(C)]` or `#[repr(transparent)]`, has no padding and no `Drop`; anything
/// else is refused by the compiler, with the reason. Enums are refused: another process may write
/// any bits, and an enum has values for few of them.
///
/// A structure's identity in a world is its name with the names and types of its fields. A
/// program that means something else gets an error when it opens an object of it.
///
/// Padding of a structure with parameters is found where it is used, since it depends on them.
#[proc_macro_derive(Plain)]
pub fn plain(input: TokenStream) -> TokenStream {
    let structure = PlainStructure::parse(input);
    structure.map_or_else(|reason| reason.into_error(), |structure| structure.implementation())
}

/// Reason why a type is not plain, and the place in the source to show it at.
struct NotPlain {
    reason: String,
    at: Span,
}

impl NotPlain {
    fn new(reason: impl Into<String>, at: Span) -> Self {
        NotPlain { reason: reason.into(), at }
    }

    fn into_error(self) -> TokenStream {
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
struct Field {
    name: Option<String>,
    of: TokenStream,
}

/// A structure that is to be plain.
struct PlainStructure {
    name: Ident,
    /// The parameters as they are declared (`T: Bound, const N: usize`).
    parameters: TokenStream,
    /// The parameters as arguments (`T, N`).
    arguments: TokenStream,
    /// The where clause, with its keyword.
    conditions: TokenStream,
    fields: Vec<Field>,
}

fn tokens(text: &str) -> TokenStream {
    text.parse().expect("text of this file, and names")
}

fn is_ident(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == word)
}

fn is_punct(token: &TokenTree, char: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == char)
}

fn is_group(token: &TokenTree, delimiter: Delimiter) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == delimiter)
}

fn content(token: &TokenTree) -> Vec<TokenTree> {
    match token {
        TokenTree::Group(group) => group.stream().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Parts between commas outside all brackets, also pointed ones.
fn split_at_commas(tokens: &[TokenTree]) -> Vec<&[TokenTree]> {
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
fn behind_prefix(mut tokens: &[TokenTree]) -> &[TokenTree] {
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

/// Returns whether an attribute (the tokens in its brackets) fixes the layout.
fn fixes_layout(attribute: &[TokenTree]) -> bool {
    let [repr, arguments] = attribute else { return false };
    let fixed = |token: &TokenTree| is_ident(token, "C") || is_ident(token, "transparent");
    is_ident(repr, "repr") && content(arguments).iter().any(fixed)
}

impl PlainStructure {
    fn parse(input: TokenStream) -> Result<PlainStructure, NotPlain> {
        let input: Vec<TokenTree> = input.into_iter().collect();
        let attributes = input.windows(2).filter(|pair| is_punct(&pair[0], '#'));
        let is_fixed = attributes.clone().any(|pair| fixes_layout(&content(&pair[1])));
        let kinds = ["struct", "enum", "union"];
        let at = input.iter().position(|token| kinds.iter().any(|kind| is_ident(token, kind)));
        let at = at.ok_or_else(|| NotPlain::new("only structures are plain", Span::call_site()))?;
        let Some(TokenTree::Ident(name)) = input.get(at + 1) else {
            return Err(NotPlain::new("only structures with a name are plain", input[at].span()));
        };
        if !is_ident(&input[at], "struct") {
            let reason = format!(
                "`{name}` is no structure: another process may write any bits, for which an enum has no value \
                 and a union no meaning; use an integer field, and check it where it is read"
            );
            return Err(NotPlain::new(reason, name.span()));
        }
        if !is_fixed {
            let reason = format!(
                "the compiler may order the fields of `{name}` as it likes: write #[repr(C)] above it, so that \
                 all programs agree"
            );
            return Err(NotPlain::new(reason, name.span()));
        }
        let (generics, rest) = split_generics(&input[at + 2..]);
        let (parameters, arguments) = declared(generics)?;
        let (mut fields, mut conditions) = (Vec::new(), Vec::new());
        for token in rest {
            if is_group(token, Delimiter::Brace) {
                fields = named(&content(token))?;
            } else if is_group(token, Delimiter::Parenthesis) && conditions.is_empty() {
                fields = unnamed(&content(token));
            } else if !is_punct(token, ';') {
                conditions.push(token.clone());
            }
        }
        let conditions = conditions.into_iter().collect();
        Ok(PlainStructure { name: name.clone(), parameters, arguments, conditions, fields })
    }

    /// Assertions about the layout, which the source does not show.
    fn checks(&self) -> TokenStream {
        let name = &self.name;
        let drops = format!(
            "a value in shared memory is never dropped: neither `{name}` nor a field of it may implement Drop"
        );
        let padding = format!(
            "`{name}` has padding, whose bytes have no value to share: order the fields by size, the largest \
             first, and fill up the rest by a field such as `unused: [u8; 4]`"
        );
        let mut sum = tokens("0");
        for field in &self.fields {
            sum.extend(tokens("+ ::core::mem::size_of::<"));
            sum.extend(field.of.clone());
            sum.extend(tokens(">()"));
        }
        let this = self.this();
        let mut checks = tokens("::core::assert!");
        let mut no_drop = tokens("!::core::mem::needs_drop::<");
        no_drop.extend(this.clone());
        no_drop.extend(tokens(&format!(">(), {drops:?}")));
        checks.extend([in_group(Delimiter::Parenthesis, no_drop)]);
        checks.extend(tokens("; ::core::assert!"));
        let mut no_padding = tokens("::core::mem::size_of::<");
        no_padding.extend(this);
        no_padding.extend(tokens(">() =="));
        no_padding.extend(sum);
        no_padding.extend(tokens(&format!(", {padding:?}")));
        checks.extend([in_group(Delimiter::Parenthesis, no_padding)]);
        checks.extend(tokens(";"));
        checks
    }

    /// The structure with its arguments.
    fn this(&self) -> TokenStream {
        let mut this = TokenStream::from(TokenTree::Ident(self.name.clone()));
        if !self.arguments.is_empty() {
            this.extend(tokens("<"));
            this.extend(self.arguments.clone());
            this.extend(tokens(">"));
        }
        this
    }

    /// The head of an implementation of that trait.
    fn head(&self, of: &str) -> TokenStream {
        let mut head = tokens("#[automatically_derived] #[allow(unsafe_code)] unsafe impl <");
        head.extend(self.parameters.clone());
        head.extend(tokens(&format!("> ::towpath::{of} for")));
        head.extend(self.this());
        head.extend(self.conditions.clone());
        head
    }

    fn implementation(&self) -> TokenStream {
        // Both hold what the traits ask for: a fixed layout (`parse`) of plain fields (`is_plain`),
        // without `Drop` and padding (`checks`); the text names the structure and its fields.
        let mut all = self.head("Plain");
        all.extend([in_group(Delimiter::Brace, TokenStream::new())]);
        let mut body = tokens("const fn is_plain<T: ::towpath::Plain>() {}");
        for field in &self.fields {
            body.extend(tokens("is_plain::<"));
            body.extend(field.of.clone());
            body.extend(tokens(">();"));
        }
        let checks = in_group(Delimiter::Brace, self.checks());
        if self.parameters.is_empty() {
            all.extend(tokens("const _: () ="));
            all.extend([checks]);
            all.extend(tokens(";"));
        } else {
            body.extend(tokens("const"));
            body.extend([checks]);
        }
        body.extend(tokens(&format!("f.write_str({:?})?;", format!("{} {{", self.name))));
        for (number, field) in self.fields.iter().enumerate() {
            let label = field.name.as_ref().map_or(String::new(), |name| format!("{name}: "));
            let comma = if number == 0 { "" } else { ", " };
            body.extend(tokens(&format!("f.write_str({:?})?;", format!("{comma}{label}"))));
            body.extend(tokens("::core::fmt::Display::fmt"));
            let mut text = tokens("&::towpath::machine::TypeText::<");
            text.extend(field.of.clone());
            text.extend(tokens(">::default(), f"));
            body.extend([in_group(Delimiter::Parenthesis, text)]);
            body.extend(tokens("?;"));
        }
        body.extend(tokens("f.write_str(\"}\")"));
        let mut object = tokens("fn describe(f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result");
        object.extend([in_group(Delimiter::Brace, body)]);
        all.extend(self.head("Object"));
        all.extend([in_group(Delimiter::Brace, object)]);
        all
    }
}

fn in_group(delimiter: Delimiter, stream: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(delimiter, stream))
}

/// The tokens between the pointed brackets behind a name, and those behind these.
fn split_generics(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
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

/// Parameters as an implementation declares them, with `Plain` as a bound of each type,
/// and as arguments.
fn declared(generics: &[TokenTree]) -> Result<(TokenStream, TokenStream), NotPlain> {
    let (mut parameters, mut arguments) = (TokenStream::new(), TokenStream::new());
    for parameter in split_at_commas(generics) {
        let end = parameter.iter().position(|token| is_punct(token, '=')).unwrap_or(parameter.len());
        let declared = &parameter[..end];
        let [first, ..] = declared else { continue };
        if is_punct(first, '\'') {
            let reason = "a reference means nothing to another process: a plain structure has no lifetimes";
            return Err(NotPlain::new(reason, first.span()));
        }
        let is_const = is_ident(first, "const");
        parameters.extend(declared.iter().cloned());
        if !is_const {
            let has_bounds = declared.iter().any(|token| is_punct(token, ':'));
            parameters.extend(tokens(if has_bounds { "+ ::towpath::Plain" } else { ": ::towpath::Plain" }));
        }
        parameters.extend(tokens(","));
        arguments.extend(declared.get(usize::from(is_const)).cloned());
        arguments.extend(tokens(","));
    }
    Ok((parameters, arguments))
}

fn named(fields: &[TokenTree]) -> Result<Vec<Field>, NotPlain> {
    split_at_commas(fields)
        .into_iter()
        .map(|field| match behind_prefix(field) {
            [name, colon, of @ ..] if is_punct(colon, ':') => {
                Ok(Field { name: Some(name.to_string()), of: of.iter().cloned().collect() })
            }
            other => {
                let at = other.first().map_or(Span::call_site(), TokenTree::span);
                Err(NotPlain::new("a field is a name, a colon and a type", at))
            }
        })
        .collect()
}

fn unnamed(fields: &[TokenTree]) -> Vec<Field> {
    let of = |field| behind_prefix(field).iter().cloned().collect();
    split_at_commas(fields).into_iter().map(|field| Field { name: None, of: of(field) }).collect()
}
