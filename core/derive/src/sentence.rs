//! `#[derive(SentenceDebug)]`.

use proc_macro::{Delimiter, Span, TokenStream, TokenTree};

use crate::parse::{
    Field, NotDerived, behind_prefix, content, declared_and_arguments, is_group, is_ident, named,
    split_at_commas, split_generics, tokens, unnamed,
};

/// Variant of an error, or the structure that it is.
struct ErrorVariant {
    name: String,
    fields: Vec<Field>,
}

impl ErrorVariant {
    fn new(name: &TokenTree, fields: Option<&TokenTree>) -> Result<ErrorVariant, NotDerived> {
        let fields = match fields {
            Some(group) if is_group(group, Delimiter::Brace) => named(&content(group))?,
            Some(group) if is_group(group, Delimiter::Parenthesis) => unnamed(&content(group)),
            _ => Vec::new(),
        };
        Ok(ErrorVariant { name: name.to_string(), fields })
    }

    /// The arm that prints the variant, whose pattern begins with this path.
    fn arm(&self, path: &str) -> String {
        let name = &self.name;
        let (mut bindings, mut calls, mut opaque) = (String::new(), String::new(), "");
        for (number, field) in self.fields.iter().enumerate() {
            let place = field.name.clone().unwrap_or_else(|| number.to_string());
            if field.is_opaque {
                opaque = "_non_exhaustive";
                continue;
            }
            bindings += &format!("{place}: field_{number}, ");
            let label = field.name.as_ref().map_or_else(String::new, |name| format!("{name:?}, "));
            calls += &format!(".field({label}field_{number})");
        }
        match self.fields.first() {
            None => format!("{path} => formatter.write_str({name:?}),"),
            Some(first) => {
                let kind = if first.name.is_some() { "struct" } else { "tuple" };
                format!(
                    "{path} {{ {bindings} .. }} => formatter.debug_{kind}({name:?}){calls}.finish{opaque}(),"
                )
            }
        }
    }
}

/// Returns `Debug` of an error.
pub(crate) fn debug(input: TokenStream) -> Result<TokenStream, NotDerived> {
    let input: Vec<TokenTree> = input.into_iter().collect();
    let at = input.iter().position(|token| is_ident(token, "struct") || is_ident(token, "enum"));
    let at = at.ok_or_else(|| NotDerived::new("an error is an enum or a structure", Span::call_site()))?;
    let name = &input[at + 1];
    let (generics, rest) = split_generics(&input[at + 2..]);
    let body = rest.iter().find(|token| matches!(token, TokenTree::Group(_)));
    let mut arms = String::new();
    let mut types = Vec::new();
    let mut add = |variant: ErrorVariant, path: &str| {
        arms += &variant.arm(path);
        types.extend(variant.fields.into_iter().filter(|field| !field.is_opaque).map(|field| field.of));
    };
    if is_ident(&input[at], "struct") {
        add(ErrorVariant::new(name, body)?, "Self");
    } else {
        for variant in split_at_commas(&body.map(content).unwrap_or_default()) {
            if let [name, fields @ ..] = behind_prefix(variant) {
                add(ErrorVariant::new(name, fields.first())?, &format!("Self::{name}"));
            }
        }
    }
    let (declared, arguments) = declared_and_arguments(generics);
    // Only the types of a parameter's fields may have no `Debug` where others have it.
    let conditions = types.iter().filter(|_| !generics.is_empty());
    let conditions: String = conditions.map(|of| format!("{of}: ::core::fmt::Debug,")).collect();
    Ok(tokens(&format!(
        "#[automatically_derived]
        impl<{declared}> ::core::fmt::Debug for {name}<{arguments}>
        where Self: ::core::fmt::Display, {conditions} {{
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
                if !formatter.alternate() {{
                    return ::core::fmt::Display::fmt(self, formatter);
                }}
                match self {{ {arms} }}
            }}
        }}"
    )))
}
