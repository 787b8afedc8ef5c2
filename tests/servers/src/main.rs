//! Private servers for a script: starts RabbitMQ and Redis, prints the settings by which the program finds them, ends when its input does.

use std::io;

use kernelopt_test_servers::{RabbitMq, Redis, RedisOptions, ServerError};

fn main() -> Result<(), ServerError> {
    let (rabbit, redis) = (RabbitMq::start()?, Redis::start(RedisOptions::default())?);
    println!("KERNELOPT_BROKER_URL={}\nKERNELOPT_REDIS_URL={}", rabbit.url(), redis.url());
    // Whatever ends it, it ends.
    let _ = io::copy(&mut io::stdin(), &mut io::sink());
    Ok(())
}
