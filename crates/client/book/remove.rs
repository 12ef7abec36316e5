use landfast_client::fs::{ToRemove, NewFile, Nfs};

pub async fn remove(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["old/a/b"], 0o755).await;
    nfs.write_files((0..50).map(|n| NewFile::new(format!("old/a/b/{n}"), "x"))).await;

    // Names: files, links, empty directories.
    for gone in nfs.remove(["old/a/b/0", "old/a/b/1"]).await {
        gone.into_result()?;
    }
    // A tree, from below, by handles: what somebody puts in its place meanwhile stays.
    let top = nfs.look_into(b"", false).await.into_result()?;
    let old = nfs.look_into(b"old", false).await.into_result()?;
    let tree = ToRemove {
        path: b"old".to_vec(),
        parent: top.fh,
        name: b"old".to_vec(),
        dir: Some(old.fh),
        is_dir: true,
        first_page: old.first_page,
    };
    let (mut removed, mut failed) = (0, Vec::new());
    nfs.remove_trees([tree], |removal| match removal.outcome.into_result() {
        Ok(()) => removed += 1,
        Err(e) => failed.push(e),
    })
    .await;
    assert_eq!((removed, failed.len()), (51, 0)); // 48 files and 3 directories
    nfs.disconnect().await;
    Ok(())
}
