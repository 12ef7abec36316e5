//! Derive macros for the XDR traits.
//!
//! A struct is its fields in order (RFC 4506 section 4.14). An enum is a discriminated union (section 4.15): each
//! variant names its discriminant with `#[xdr(tag = EXPR)]`, where `EXPR` is a constant `u32`. A field may bound the
//! length of its opaque data or array with `#[xdr(max = EXPR)]`, where `EXPR` is a constant `usize`.

#![forbid(unsafe_code)]

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Expr, Field, Fields, Ident, Variant, parse_macro_input};

/// Derives `landfast_xdr::Encode`.
#[proc_macro_derive(Encode, attributes(xdr))]
pub fn derive_encode(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    encode(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Derives `landfast_xdr::Decode`.
#[proc_macro_derive(Decode, attributes(xdr))]
pub fn derive_decode(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    decode(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// The value of `#[xdr(key = EXPR)]`, if it is there.
fn value(attrs: &[Attribute], key: &str) -> Result<Option<Expr>, Error> {
    let mut value = None;
    for attr in attrs.iter().filter(|a| a.path().is_ident("xdr")) {
        attr.parse_nested_meta(|meta| {
            if !meta.path.is_ident(key) {
                return Err(meta.error(format!("expected `{key} = EXPR`")));
            }
            value = Some(meta.value()?.parse::<Expr>()?);
            Ok(())
        })?;
    }
    Ok(value)
}

fn tag(variant: &Variant) -> Result<Expr, Error> {
    value(&variant.attrs, "tag")?
        .ok_or_else(|| Error::new_spanned(variant, "this variant needs #[xdr(tag = EXPR)]"))
}

/// The expressions that decode these fields.
fn decoded(fields: &Fields) -> Result<Vec<TokenStream>, Error> {
    let one = |field: &Field| {
        Ok(match value(&field.attrs, "max")? {
            Some(max) => {
                quote!(::landfast_xdr::DecodeAtMost::decode_at_most(r, { const MAX: usize = #max; MAX })?)
            }
            None => quote!(::landfast_xdr::Decode::decode(r)?),
        })
    };
    fields.iter().map(one).collect()
}

/// The names that a pattern binds a variant's fields to, and the pattern.
fn pattern(variant: &Variant) -> (Vec<Ident>, TokenStream) {
    let name = &variant.ident;
    match &variant.fields {
        Fields::Unit => (Vec::new(), quote!(Self::#name)),
        Fields::Unnamed(f) => {
            let ids: Vec<_> = (0..f.unnamed.len()).map(|i| format_ident!("f{i}")).collect();
            let p = quote!(Self::#name(#(#ids),*));
            (ids, p)
        }
        Fields::Named(f) => {
            let ids: Vec<_> = f.named.iter().filter_map(|f| f.ident.clone()).collect();
            let p = quote!(Self::#name { #(#ids),* });
            (ids, p)
        }
    }
}

fn encode(input: &DeriveInput) -> Result<TokenStream, Error> {
    let body = match &input.data {
        Data::Struct(s) => {
            let members = s.fields.members();
            quote!(#(::landfast_xdr::Encode::encode(&self.#members, out);)*)
        }
        Data::Enum(e) => {
            let mut arms = Vec::new();
            for v in &e.variants {
                let tag = tag(v)?;
                let (ids, pattern) = pattern(v);
                arms.push(quote!(#pattern => {
                    ::landfast_xdr::Encode::encode(&{ const TAG: u32 = #tag; TAG }, out);
                    #(::landfast_xdr::Encode::encode(#ids, out);)*
                }));
            }
            quote!(match self { #(#arms)* })
        }
        Data::Union(_) => return Err(Error::new_spanned(input, "a Rust union has no XDR representation")),
    };
    let name = &input.ident;
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::landfast_xdr::Encode for #name #ty_generics #where_clause {
            fn encode(&self, out: &mut ::landfast_xdr::BytesMut) { let _ = &out; #body }
        }
    })
}

fn decode(input: &DeriveInput) -> Result<TokenStream, Error> {
    let name = &input.ident;
    let body = match &input.data {
        Data::Struct(s) => {
            let members = s.fields.members();
            let decoded = decoded(&s.fields)?;
            quote!(Ok(Self { #(#members: #decoded),* }))
        }
        Data::Enum(e) => {
            let mut arms = Vec::new();
            for v in &e.variants {
                let tag = tag(v)?;
                let (ids, pattern) = pattern(v);
                let decoded = decoded(&v.fields)?;
                arms.push(quote!(x if x == { const TAG: u32 = #tag; TAG } => {
                    #(let #ids = #decoded;)*
                    Ok(#pattern)
                }));
            }
            let text = name.to_string();
            quote!(match r.u32()? {
                #(#arms)*
                value => Err(::landfast_xdr::Error::BadTag { name: #text, value }),
            })
        }
        Data::Union(_) => return Err(Error::new_spanned(input, "a Rust union has no XDR representation")),
    };
    let (impl_generics, ty_generics, where_clause) = input.generics.split_for_impl();
    Ok(quote! {
        impl #impl_generics ::landfast_xdr::Decode for #name #ty_generics #where_clause {
            fn decode(r: &mut ::landfast_xdr::Reader) -> Result<Self, ::landfast_xdr::Error> { let _ = &r; #body }
        }
    })
}
