use landfast_client::fs::Nfs;

/// `url`: such as `nfs://server/export?version=4.1&nconnect=4`
pub async fn connect(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    let limits = nfs.session().limits();
    println!(
        "version {}, {} operations in a COMPOUND, {} at a time",
        nfs.session().version(),
        limits.ops,
        limits.slots
    );

    // A clone is the same connection: give one to each task.
    let other = nfs.clone();
    let task = tokio::spawn(async move { other.listdir([""]).await });
    task.await?.remove(0).into_result()?;
    println!("{} RPCs so far", nfs.stats().rpcs);
    nfs.disconnect().await;
    Ok(())
}
