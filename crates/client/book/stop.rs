use landfast_client::fs::{NewFile, Nfs, Outcome};

pub async fn stop(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    let files = (0..5000).map(|n| NewFile::new(format!("part-{n}"), vec![0; 4096]));
    let (writer, stopper) = (nfs.clone(), nfs.clone());
    let writing = tokio::spawn(async move { writer.write_files(files.collect::<Vec<_>>()).await });
    // On Ctrl-C, say.
    stopper.stop();
    let outcomes = writing.await?;
    let begun = outcomes.iter().filter(|o| !matches!(o, Outcome::NotExecuted(_))).count();
    println!("{begun} files are there and stable, of the others nothing is");
    assert_eq!(outcomes.len(), 5000);
    stopper.disconnect().await;
    Ok(())
}
