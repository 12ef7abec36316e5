//! Pages of HTML that need neither network nor scripts, and what is drawn in them. `maud` escapes what is put into a page.
//!
//! | file | subject |
//! |---|---|
//! | `svg` | scales, ticks, the width of text |
//! | `words` | sentences with commands in them |
//! | `place` | where a page is written |

pub mod place;
pub mod svg;
pub mod words;

use maud::{DOCTYPE, Markup, PreEscaped, html};

/// The style of all pages, and of pictures that stand alone.
pub const STYLE: &str = include_str!("style.css");

/// Nothing is fetched, nothing is run.
const ALLOWED: &str = "default-src 'none'; style-src 'unsafe-inline'";

/// A whole page. `style` is added to that of all pages.
pub fn document(title: &str, style: &str, when: &Markup, body: &Markup, footer: &Markup) -> String {
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(ALLOWED);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) }
                style { (PreEscaped(STYLE)) (PreEscaped(style)) }
            }
            body {
                header { h1 { (title) } (when) }
                main { (body) }
                footer { (footer) }
            }
        }
    };
    page.into_string()
}
