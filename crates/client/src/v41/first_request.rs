//! The first request of a session carries more than the session needs, so that its caller saves round trips.

use bytes::Bytes;
use landfast_nfs::v4::{ArgOp, CompoundRes};
use tokio::sync::oneshot;

use crate::options::SessionLimits;

/// What the caller adds to a session's first request.
#[derive(Default)]
pub struct FirstRequest<'a> {
    /// Operations that change nothing. The first of them sets the current filehandle.
    pub queries: &'a [ArgOp],
    /// Operations that follow the queries.
    pub trailing: Option<&'a mut Trailing<'a>>,
    /// Open all connections at once, instead of each when it is needed.
    pub connect_all: bool,
}

/// Given the room in the request and in its reply, returns the encoded operations that follow [`FirstRequest::queries`] and their count. The
/// second argument says whether the session can be used before the reply has come.
///
/// It is called at most once, and only for servers that accept operations after a listing. The operations may change things. If the
/// reply is lost, nothing tells whether they were executed.
pub type Trailing<'a> = dyn FnMut(&SessionLimits, bool) -> Option<(Bytes, usize)> + Send + 'a;

/// The caller's results of a session's first request, perhaps still on their way.
pub(crate) struct FirstReply {
    results: Option<CompoundRes>,
    pending: Option<oneshot::Receiver<Option<CompoundRes>>>,
}

impl FirstReply {
    /// Results that are there, or none.
    pub(crate) fn ready(results: Option<CompoundRes>) -> FirstReply {
        FirstReply { results, pending: None }
    }

    /// Results that will be sent.
    pub(crate) fn pending(results: oneshot::Receiver<Option<CompoundRes>>) -> FirstReply {
        FirstReply { results: None, pending: Some(results) }
    }

    /// The reply has not come, and further requests may be sent before it does.
    pub(crate) fn is_pending(&self) -> bool {
        self.pending.is_some()
    }

    /// Waits for the results. `None`: there are none, or it is unknown whether anything was executed.
    pub(crate) async fn wait(&mut self) -> Option<CompoundRes> {
        if let Some(pending) = &mut self.pending {
            self.results = pending.await.unwrap_or_default();
            self.pending = None;
        }
        self.results.take()
    }
}
