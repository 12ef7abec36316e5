use bytes::Bytes;
use landfast_client::compound::Results;
use landfast_client::{NfsUrl, Session, SessionOptions};
use landfast_nfs::v4::attr::{Bitmap, number};
use landfast_nfs::v4::{ArgOp, OpNum};

pub async fn compound(url: &str) -> Result<(), Box<dyn std::error::Error>> {
    let url: NfsUrl = url.parse()?;
    let session = Session::connect(SessionOptions::for_url(&url)).await?;
    let mut ops = vec![ArgOp::Putrootfh];
    ops.extend(url.path.iter().map(|name| ArgOp::Lookup(Bytes::copy_from_slice(name))));
    ops.push(ArgOp::Getattr(Bitmap::of(&[number::FILEID, number::CHANGE])));

    // One RPC; `false`: the server need not keep the reply, since asking again does no harm.
    let mut results = Results::new(session.compound(ops, false).await?);
    results.skip(&[OpNum::PUTROOTFH])?;
    for _ in &url.path {
        results.skip(&[OpNum::LOOKUP])?;
    }
    println!("{:?}", results.getattr()?);
    session.destroy().await;
    Ok(())
}
