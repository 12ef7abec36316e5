use landfast_client::fs::{NewFile, Nfs, WalkOptions};

pub async fn walk(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs((0..20).map(|n| format!("tree/{n}/deep")), 0o755).await;
    nfs.write_files((0..20).map(|n| NewFile::new(format!("tree/{n}/deep/file"), "123"))).await;

    // As `du`: many directories in one COMPOUND, given as they come.
    let (mut files, mut bytes) = (0, 0);
    nfs.walk(["tree"], WalkOptions::default(), |listing| match listing.entries.into_result() {
        Ok(entries) => {
            for entry in entries.iter().filter(|entry| !entry.meta.is_dir()) {
                files += 1;
                bytes += entry.meta.size;
            }
        }
        Err(e) => eprintln!("{}: {e}", String::from_utf8_lossy(&listing.path)),
    })
    .await;
    assert_eq!((files, bytes), (20, 60));
    nfs.disconnect().await;
    Ok(())
}
