use maud::{Markup, html};

/// Formats a sentence with `commands` between backticks.
pub fn sentence(text: &str) -> Markup {
    html! {
        @for (i, piece) in text.split('`').enumerate() {
            @if i % 2 == 1 { code { (piece) } } @else { (piece) }
        }
    }
}
