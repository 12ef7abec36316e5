use landfast_client::fs::Nfs;
use landfast_client::tar::{Root, Silent, Sink, TarOptions, create};

pub async fn archive(url: &str, archive: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    let object = nfs.getattrs([""]).await.remove(0).into_result();
    let root = Root { nfs: nfs.clone(), name: b"all".to_vec(), object };
    let report = create(vec![root], Sink::File(archive.to_owned()), TarOptions::default(), &Silent).await?;
    assert!(report.complete());
    nfs.disconnect().await;
    Ok(())
}
