use landfast_client::fs::{NewFile, Nfs};

pub async fn read(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["a/b/c"], 0o755).await.remove(0).into_result()?;
    nfs.write_files([NewFile::new("a/b/c/long", "0123456789"), NewFile::new("short", "!")]).await;

    // Whole files, wherever they are: paths are resolved in the COMPOUND that reads.
    let files = nfs.read_files(["a/b/c/long", "short"]).await;
    let sizes: Result<Vec<_>, _> =
        files.into_iter().map(|f| f.into_result().map(|data| data.len())).collect();
    assert_eq!(sizes?, [10, 1]);

    // Parts: path, first byte, bytes. Less comes at a file's end.
    let parts = nfs.read([("a/b/c/long", 2, 3), ("a/b/c/long", 8, 100)]).await;
    let parts: Result<Vec<_>, _> = parts.into_iter().map(|part| part.into_result()).collect();
    assert_eq!(parts?, ["234", "89"]);
    nfs.disconnect().await;
    Ok(())
}
