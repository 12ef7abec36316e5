use landfast_client::fs::{NewFile, Nfs};

pub async fn write(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["site/pages"], 0o755).await.remove(0).into_result()?;

    let pages = (0..100).map(|n| NewFile::new(format!("site/pages/{n}.html"), format!("<p>{n}\n")));
    let before = nfs.stats().rpcs;
    for page in nfs.write_files(pages).await {
        page.into_result()?; // on the server's stable storage, name and data
    }
    println!("100 files in {} RPCs", nfs.stats().rpcs - before);

    // Never over what is there.
    let first = NewFile { exclusive: true, ..NewFile::new("site/pages/0.html", "another") };
    assert!(nfs.write_files([first]).await.remove(0).into_result().is_err());
    nfs.disconnect().await;
    Ok(())
}
