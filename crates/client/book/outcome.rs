use landfast_client::fs::{NewFile, Nfs, Outcome};
use landfast_nfs::v4::NfsStat;

pub async fn outcome(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let nfs = Nfs::connect(&url.parse()?).await?;
    let files =
        [NewFile::new("fine", "1"), NewFile::new("no/such/directory", "2"), NewFile::new("fine too", "3")];
    let (mut done, mut refused) = (0, 0);
    for outcome in nfs.write_files(files).await {
        match outcome {
            // Stable.
            Outcome::Committed(_) => done += 1,
            // The server said no, and which operation it was.
            Outcome::Failed(failure) => {
                assert_eq!(failure.status(), NfsStat::NFS4ERR_NOENT);
                refused += 1;
            }
            // Nothing has happened: it may be asked for again.
            Outcome::NotExecuted(why) => return Err(why.into()),
            // The reply is lost for good: look, before it is asked for again.
            Outcome::Unknown(why) => return Err(why.into()),
        }
    }
    assert_eq!((done, refused), (2, 1));
    nfs.disconnect().await;
    Ok(())
}
