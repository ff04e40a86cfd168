//! `#[derive(Plain)]`.

use proc_macro::{Delimiter, Ident, Span, TokenStream, TokenTree};

use crate::parse::{
    Field, NotDerived, content, in_group, is_group, is_ident, is_punct, named, parameters, split_generics,
    tokens, unnamed,
};

/// A structure that is to be plain.
pub(crate) struct PlainStructure {
    name: Ident,
    /// The parameters as they are declared (`T: Bound, const N: usize`).
    parameters: TokenStream,
    /// The parameters as arguments (`T, N`).
    arguments: TokenStream,
    /// The where clause, with its keyword.
    conditions: TokenStream,
    fields: Vec<Field>,
}

/// Returns whether an attribute (the tokens in its brackets) fixes the layout.
fn fixes_layout(attribute: &[TokenTree]) -> bool {
    let [repr, arguments] = attribute else { return false };
    let fixed = |token: &TokenTree| is_ident(token, "C") || is_ident(token, "transparent");
    is_ident(repr, "repr") && content(arguments).iter().any(fixed)
}

impl PlainStructure {
    pub fn parse(input: TokenStream) -> Result<PlainStructure, NotDerived> {
        let input: Vec<TokenTree> = input.into_iter().collect();
        let attributes = input.windows(2).filter(|pair| is_punct(&pair[0], '#'));
        let is_fixed = attributes.clone().any(|pair| fixes_layout(&content(&pair[1])));
        let kinds = ["struct", "enum", "union"];
        let at = input.iter().position(|token| kinds.iter().any(|kind| is_ident(token, kind)));
        let at = at.ok_or_else(|| NotDerived::new("only structures are plain", Span::call_site()))?;
        let Some(TokenTree::Ident(name)) = input.get(at + 1) else {
            return Err(NotDerived::new("only structures with a name are plain", input[at].span()));
        };
        if !is_ident(&input[at], "struct") {
            let reason = format!(
                "`{name}` is no structure: another process may write any bits, for which an enum has no value \
                 and a union no meaning; use an integer field, and check it where it is read"
            );
            return Err(NotDerived::new(reason, name.span()));
        }
        if !is_fixed {
            let reason = format!(
                "the compiler may order the fields of `{name}` as it likes: write #[repr(C)] above it, so that \
                 all programs agree"
            );
            return Err(NotDerived::new(reason, name.span()));
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

    pub fn implementation(&self) -> TokenStream {
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

/// Parameters as an implementation declares them, with `Plain` as a bound of each type,
/// and as arguments.
fn declared(generics: &[TokenTree]) -> Result<(TokenStream, TokenStream), NotDerived> {
    let (mut declared, mut arguments) = (TokenStream::new(), TokenStream::new());
    for parameter in parameters(generics) {
        let first = &parameter.declared[0];
        if is_punct(first, '\'') {
            let reason = "a reference means nothing to another process: a plain structure has no lifetimes";
            return Err(NotDerived::new(reason, first.span()));
        }
        declared.extend(parameter.declared.iter().cloned());
        if !parameter.is_const() {
            let more = if parameter.has_bounds() { "+ ::towpath::Plain" } else { ": ::towpath::Plain" };
            declared.extend(tokens(more));
        }
        declared.extend(tokens(","));
        arguments.extend(parameter.argument.iter().cloned());
        arguments.extend(tokens(","));
    }
    Ok((declared, arguments))
}
