//! The examples of the book, as they stand there, on our server in each version.

mod common;

use common::{Rig, tree};

macro_rules! chapters {
    ($($name:ident),* $(,)?) => { $(mod $name { include!(concat!("../book/", stringify!($name), ".rs")); })* };
}

chapters!(
    archive, beside, change, compound, connect, copy, extract, list, outcome, queue, read, remove, stop,
    walk, write
);

#[tokio::test(flavor = "multi_thread")]
#[cfg_attr(not(root), ignore = "needs root")]
async fn each_example_in_each_version() {
    for version in ["3", "4.0", "4.1", "4.2"] {
        let rig = Rig::new().await;
        let work = rig.work();
        let url = |dir: &str| {
            std::fs::create_dir(rig.dest().join(dir)).unwrap();
            format!("nfs://{}{}/{dir}?version={version}", rig.addr(), rig.top(version))
        };
        macro_rules! on {
            ($($name:ident)*) => { $($name::$name(&url(stringify!($name))).await.unwrap();)* };
        }
        on!(connect write queue outcome read list walk change copy remove stop compound);
        let (at, made) =
            (format!("nfs://{}{}/write?version={version}", rig.addr(), rig.top(version)), work.join("a.tar"));
        archive::archive(&at, &made).await.unwrap();
        extract::extract(&url("extract"), &made).await.unwrap();
        let same = format!("nfs://{}{}/extract/all?version={version}", rig.addr(), rig.top(version));
        beside::beside(&same, &rig.dest().join("write")).await.unwrap();
        assert_eq!(tree(&rig.dest().join("write")), tree(&rig.dest().join("extract/all")), "{version}");
        // What the examples say of themselves, seen on the server's side.
        let count = |dir: &str| std::fs::read_dir(rig.dest().join(dir)).unwrap().count();
        assert_eq!(count("write/site/pages"), 100, "{version}");
        assert_eq!(count("queue/spool"), 1000, "{version}");
        assert_eq!(count("copy/out"), 10, "{version}");
        assert_eq!(count("remove"), 0, "{version}");
        rig.stop().await;
    }
}
