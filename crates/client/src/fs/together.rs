//! Many items of one action, to their results.
//!
//! The loop is compiled here ([`crate::here`]), once for each action.

use super::action::Action;
use super::item::Item;
use super::outcome::Outcome;
use super::run;
use super::shared::Shared;
use crate::here::Here;
use crate::session::SessionError;

/// An action of which callers want a result for each item.
pub(super) trait Together: Action + Sized {
    /// Runs items and returns their results in the same order.
    fn all(shared: &Shared, items: Vec<Item<Self>>) -> Here<'_, Vec<Outcome<Self::Out>>>;
}

pub(super) async fn all<A: Action>(shared: &Shared, items: Vec<Item<A>>) -> Vec<Outcome<A::Out>> {
    let mut outcomes: Vec<Option<Outcome<A::Out>>> = items.iter().map(|_| None).collect();
    run::run(shared, items, |n, _, outcome, _| outcomes[n] = Some(outcome)).await;
    let missing = || Outcome::NotExecuted(SessionError::Ended.to_string());
    outcomes.into_iter().map(|o| o.unwrap_or_else(missing)).collect()
}

/// Makes an action one of these.
macro_rules! together {
    ($action:ty) => {
        impl $crate::fs::together::Together for $action {
            fn all(
                shared: &$crate::fs::shared::Shared,
                items: Vec<$crate::fs::item::Item<Self>>,
            ) -> $crate::here::Here<
                '_,
                Vec<$crate::fs::outcome::Outcome<<Self as $crate::fs::action::Action>::Out>>,
            > {
                Box::pin($crate::fs::together::all(shared, items))
            }
        }
    };
}
pub(super) use together;
