use landfast_client::fs::Nfs;
use landfast_client::trees::{Compare, OnProgress, Tree, compare};
use landfast_client::archive::Filter;
use std::sync::Arc;

pub async fn beside(url: &str, dir: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    let top = nfs.getattrs([""]).await.remove(0).into_result()?;
    let all = Filter::default();
    let heard: OnProgress = Arc::new(|objects| println!("{objects} more are listed"));
    let here = Tree::local(dir, &all, &heard);
    let there = Tree::server(&nfs, &top, &all, &heard, ToString::to_string).await;
    let (differences, _) = compare(&here, &there, &Compare::default());
    for difference in &differences {
        println!("{difference:?}");
    }
    nfs.disconnect().await;
    Ok(())
}
