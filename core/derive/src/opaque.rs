//! `#[derive(OpaqueDebug)]`.

use proc_macro::{Delimiter, Span, TokenStream, TokenTree};

use crate::parse::{
    NotDerived, declared_and_arguments, is_group, is_ident, is_punct, split_generics, tokens,
};

/// Returns `Debug` that prints the name of a type and no field.
pub(crate) fn debug(input: TokenStream) -> Result<TokenStream, NotDerived> {
    let input: Vec<TokenTree> = input.into_iter().collect();
    let at = input.iter().position(|token| is_ident(token, "struct") || is_ident(token, "enum"));
    let at = at.ok_or_else(|| NotDerived::new("only structures and enums are opaque", Span::call_site()))?;
    let name = &input[at + 1];
    let (generics, rest) = split_generics(&input[at + 2..]);
    let (declared, arguments) = declared_and_arguments(generics);
    // Before the fields of a structure with names, behind those of a tuple.
    let conditions: TokenStream = rest
        .iter()
        .skip_while(|token| !is_ident(token, "where"))
        .take_while(|token| !is_group(token, Delimiter::Brace) && !is_punct(token, ';'))
        .cloned()
        .collect();
    let text = name.to_string();
    Ok(tokens(&format!(
        "#[automatically_derived]
        impl<{declared}> ::core::fmt::Debug for {name}<{arguments}> {conditions} {{
            fn fmt(&self, formatter: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {{
                formatter.debug_struct({text:?}).finish_non_exhaustive()
            }}
        }}"
    )))
}
