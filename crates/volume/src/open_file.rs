use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::access_cache::AccessCache;
use crate::node::Node;
use crate::node_fd::NodeFd;
use crate::types::Cred;
use crate::volume::Volume;

/// An open regular file. Cheap to clone; closed with the last clone. Stays usable after the file is unlinked.
#[derive(Clone, Debug)]
pub struct OpenFile(pub(crate) Arc<OpenInner>);

pub(crate) struct OpenInner {
    pub(crate) node: Node,
    pub(crate) fd: Arc<NodeFd>,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// Whose rights writes have.
    pub(crate) cred: Cred,
    /// The last checks of the opener's rights.
    pub(crate) access: AccessCache,
    pub(crate) volume: Volume,
}

impl OpenFile {
    pub(crate) fn new(
        volume: &Volume,
        node: Node,
        fd: Arc<NodeFd>,
        read: bool,
        write: bool,
        cred: &Cred,
    ) -> OpenFile {
        node.0.opens.fetch_add(1, Ordering::AcqRel);
        node.0.set_open(&fd);
        let (cred, access, volume) = (cred.clone(), AccessCache::default(), volume.clone());
        OpenFile(Arc::new(OpenInner { node, fd, read, write, cred, access, volume }))
    }

    pub fn node(&self) -> &Node {
        &self.0.node
    }

    pub fn can_read(&self) -> bool {
        self.0.read
    }

    pub fn can_write(&self) -> bool {
        self.0.write
    }
}

impl Drop for OpenInner {
    fn drop(&mut self) {
        if self.node.0.opens.fetch_sub(1, Ordering::AcqRel) == 1 && self.node.0.is_dead() {
            self.volume.forget(&self.node);
        }
    }
}

impl fmt::Debug for OpenInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenFile")
            .field("node", &self.node)
            .field("read", &self.read)
            .field("write", &self.write)
            .finish_non_exhaustive()
    }
}
