use landfast_client::fs::{NewFile, Nfs};
use landfast_nfs::v4::attr::AttrValues;

pub async fn change(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    nfs.mkdirs(["here", "there"], 0o755).await;
    nfs.write_files([NewFile::new("here/new", "v2"), NewFile::new("there/current", "v1")]).await;

    let private = AttrValues { mode: Some(0o600), ..AttrValues::default() };
    nfs.setattrs([("here/new", private)]).await.remove(0).into_result()?;
    nfs.link([("there/current", "there/previous")]).await.remove(0).into_result()?;
    // What stands at the new name is replaced, at once.
    nfs.rename([("here/new", "there/current")]).await.remove(0).into_result()?;
    nfs.symlinks([("latest", "there/current".into())]).await.remove(0).into_result()?;

    let texts: Result<Vec<_>, _> =
        nfs.read_files(["latest", "there/previous"]).await.into_iter().map(|f| f.into_result()).collect();
    assert_eq!(texts?, ["v2", "v1"]);
    nfs.disconnect().await;
    Ok(())
}
