use std::sync::Arc;

use landfast_client::put::{PutOptions, Silent};
use landfast_client::untar::{Archive, run};

pub async fn extract(url: &str, archive: &std::path::Path) -> Result<(), Box<dyn std::error::Error>> {
    let source = Archive::file(archive.to_owned()); // compressed or not
    let report = run(PutOptions::default(), source, &url.parse()?, Arc::new(Silent)).await?;
    for failed in &report.failed {
        eprintln!("{failed:?}");
    }
    assert!(report.complete()); // all of it is on stable storage
    Ok(())
}
