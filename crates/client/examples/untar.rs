//! probe
use landfast_client::untar::*;
use landfast_client::*;
use std::sync::Arc;
#[tokio::main]
async fn main() {
    let a: Vec<String> = std::env::args().collect();
    let url: NfsUrl = a[2].parse().unwrap();
    let mut o = UntarOptions::default();
    if let Ok(n) = std::env::var("MEMBERS") {
        o.tuning.members_per_compound = n.parse().unwrap();
    }
    if std::env::var("KEEP").is_ok() {
        o.existing = Existing::Keep;
    }
    if std::env::var("OVER").is_ok() {
        o.existing = Existing::Overwrite;
    }
    let src = if a[1] == "-" {
        Source::Reader(Box::new(std::io::stdin()))
    } else {
        Source::File(a[1].clone().into())
    };
    match untar::run(o, src, &url, Arc::new(Silent)).await {
        Ok(mut r) => {
            let c = r.complete();
            r.failed.truncate(8);
            println!("{:?}", r);
            std::process::exit(if c { 0 } else { 1 });
            std::process::exit(if r.complete() { 0 } else { 1 })
        }
        Err(e) => {
            println!("FATAL {e}");
            std::process::exit(2)
        }
    }
}
