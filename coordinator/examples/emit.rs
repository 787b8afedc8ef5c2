fn main() {
    let mut args = std::env::args().skip(1);
    let meaning: kernelopt_shared::meaning::Meaning = serde_json::from_str(&std::fs::read_to_string(args.next().unwrap()).unwrap()).unwrap();
    let schedule: kernelopt_coordinator::schedule::Schedule = match args.next() {
        Some(text) => { let mut v = serde_json::to_value(kernelopt_coordinator::schedule::Schedule::default()).unwrap();
            let p: serde_json::Value = serde_json::from_str(&text).unwrap();
            for (k, x) in p.as_object().unwrap() { v[k] = x.clone(); }
            serde_json::from_value(v).unwrap() }
        None => Default::default(),
    };
    let scratch = args.next().map(|s| s.split(',').map(str::to_owned).collect()).unwrap_or_default();
    match kernelopt_coordinator::schedule::source(&meaning, &scratch, &schedule, kernelopt_coordinator::schedule::emit::Team(Some(2))) {
        Ok(s) => print!("{s}"),
        Err(e) => { eprintln!("{e}"); std::process::exit(1) }
    }
}
