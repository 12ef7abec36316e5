use landfast_client::fs::{NewFile, Nfs};

pub async fn list(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["dir/sub"], 0o755).await.remove(0).into_result()?;
    nfs.write_files([NewFile::new("dir/file", "12345")]).await;

    // Names with their attributes, in one go.
    let mut entries = nfs.listdir(["dir"]).await.remove(0).into_result()?;
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    for entry in &entries {
        let kind = if entry.meta.is_dir() { 'd' } else { '-' };
        println!("{kind} {:>5} {}", entry.meta.size, String::from_utf8_lossy(&entry.name));
    }
    assert_eq!(entries.len(), 2);

    // Attributes of known paths: one outcome each.
    let objects = nfs.getattrs(["dir/file", "dir/none"]).await;
    assert_eq!(objects.into_iter().filter_map(|o| o.into_result().ok()).count(), 1);
    nfs.disconnect().await;
    Ok(())
}
