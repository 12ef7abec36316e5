use landfast_client::fs::{NewFile, Nfs};

pub async fn copy(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["in", "out"], 0o755).await;
    nfs.write_files((0..10).map(|n| NewFile::new(format!("in/{n}"), vec![n; 10_000]))).await;

    // Where the server can (NFSv4.2), no data comes here.
    let pairs = (0..10).map(|n| (format!("in/{n}"), format!("out/{n}")));
    for copied in nfs.copy(pairs).await {
        assert_eq!(copied.into_result()?, 10_000);
    }
    nfs.disconnect().await;
    Ok(())
}
