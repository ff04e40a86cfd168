//! A ring of requests: every rank greets the next one, which answers.
//! To start it: `towpath run -n 4 target/release/examples/hello`.
use towpath::{Endpoint, World};

fn main() -> Result<(), towpath::Error> {
    let world = World::join()?;
    let endpoint = Endpoint::new(&world)?;
    let (me, ranks) = (world.rank(), world.size());
    endpoint.set_handler(1, move |greeting| {
        println!("rank {me} of {ranks}: rank {} says hello", greeting.args()[0]);
        greeting.reply(2, &[me]).expect("one reply to a request");
    });
    endpoint.set_handler(2, move |answer| {
        println!("rank {me} of {ranks}: rank {} has answered", answer.args()[0]);
    });
    endpoint.map_world()?; // entry r of the translation table leads to rank r
    endpoint.request(((me + 1) % ranks) as usize, 1, &[me])?;
    endpoint.barrier()?; // polls until all ranks are here: all have been greeted …
    endpoint.barrier() // … and answered
}
