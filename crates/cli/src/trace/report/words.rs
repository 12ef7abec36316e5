//! Sentences of the page.

use maud::{Markup, html};

/// A sentence in which `commands` stand between backticks.
pub fn sentence(text: &str) -> Markup {
    html! {
        @for (i, piece) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}
