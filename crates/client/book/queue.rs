use landfast_client::fs::{NewFile, Nfs};

pub async fn queue(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["spool"], 0o700).await.remove(0).into_result()?;

    let mut writes = nfs.writes();
    for n in 0..1000 {
        // Goes out while we go on; waits only when too much is under way.
        writes.add(NewFile::new(format!("spool/{n}"), format!("Subject: {n}\n"))).await;
    }
    for (n, file) in writes.sync().await.into_iter().enumerate() {
        if let Err(e) = file.into_result() {
            eprintln!("spool/{n}: {e}");
        }
    }
    nfs.disconnect().await;
    Ok(())
}
