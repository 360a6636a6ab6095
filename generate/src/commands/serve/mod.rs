//! `ember-generate serve`: serves checkpoints over HTTP to existing clients.
//!
//! Access is checked before the body is read ([`guard`]). A request is then matched to its model
//! ([`handler`], [`names`], [`models`]), parsed ([`request`], and a dialect: [`completions`],
//! [`chat`], [`llama`]) and checked against resource limits ([`parsed_request`]). It waits for a
//! slot ([`server`]), generates on its own thread with its model's engine ([`writing`],
//! [`ember_decoding::engine`]), and is answered whole or as a stream ([`answer`]).

mod answer;
mod body;
mod chat;
mod completions;
mod constraints;
mod error;
mod fields;
mod gbnf;
mod guard;
mod handler;
mod ids;
mod in_progress;
mod info;
mod json;
mod listen;
mod llama;
mod log;
mod metrics;
mod models;
mod names;
mod openapi;
mod parameter;
mod parsed_request;
mod playground;
mod request;
mod running;
mod samplers;
mod server;
mod socket;
mod special;
mod template;
#[cfg(test)]
mod tests;
mod writing;

use std::io::Write;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use axum::routing::{get, post};
use axum::{Router, middleware};
use clap::Args;

use super::model_args::WeightsArgs;
use ember_cli::compile_progress::{CompileProgress, KERNELS_OF_A_TEXT};
use ember_cli::program::{CommonArgs, Notes, Outcome, UsageError};
use ember_cli::terminal;
use ember_decoding::run_folder;
use ember_host::interrupt::Interrupt;
use ember_model::device;
use models::{LoadOptions, Model, Models};
use names::{NamedFolder, Served};
pub use running::Running;
use server::{Server, Setup};

/// The flags of `serve`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub struct ServeArgs {
    /// The run or checkpoint to serve [default: the newest run under runs/]
    #[arg(long, value_name = "RUN")]
    from: Option<PathBuf>,

    /// Serve every checkpoint of the run, too, as run@step
    #[arg(long)]
    checkpoints: bool,

    /// Serve the model of this folder or model file (.gguf, ckpt.pt, .bin) under this name; may be
    /// given again. Without --from, only these are served
    #[arg(long, value_name = "NAME=FOLDER", value_parser = names::parse_named)]
    model: Vec<NamedFolder>,

    /// The address to listen on; one that others can reach needs --api-key-file or --insecure
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = listen::address)]
    host: IpAddr,

    /// The port to listen on; 0 takes any free one, and with --quiet writes the address to standard
    /// output
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    port: u16,

    /// A file with an API key on each line; clients must send one as `Authorization: Bearer KEY`
    #[arg(long, value_name = "FILE")]
    api_key_file: Option<PathBuf>,

    /// Let everybody who reaches the address use the model, without a key
    #[arg(long)]
    insecure: bool,

    /// The origin of web pages that may use the server, such as `https://example.org`; may be given
    /// again
    #[arg(long, value_name = "ORIGIN", value_parser = guard::origin)]
    cors: Vec<String>,

    /// Requests that run at the same time; others wait
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    at_once: u16,

    /// Requests that may wait; others are refused with status 429
    #[arg(long, value_name = "N", default_value_t = 256)]
    queue: u16,

    /// Most prompt tokens to read in one step; while other texts are being written, only as many as
    /// double the time to their next token
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(4..))]
    tokens_per_step: u16,

    /// Memory for each model's KV cache: the running texts, and prefixes that may be used again;
    /// never more than 256 times the model's context
    #[arg(long, value_name = "MIB", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    cache_mib: u32,

    /// Memory for all models' weights and caches; to load another model, the least recently used
    /// one is unloaded
    #[arg(long, value_name = "MIB", default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    models_mib: u32,

    /// Turn off a route: the page, the list of running requests, or the counters; may be given
    /// again
    #[arg(long, value_name = "WHAT")]
    without: Vec<Optional>,

    /// Log every request that began to run, with its tokens and times, to this file, one JSON
    /// object per line; prompts are included
    #[arg(long, value_name = "FILE")]
    log_requests: Option<PathBuf>,

    #[command(flatten)]
    weights: WeightsArgs,
}

/// Routes that a server can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Optional {
    Page,
    Slots,
    Metrics,
}

impl Optional {
    /// The path of the route.
    fn path(self) -> &'static str {
        match self {
            Self::Page => "/",
            Self::Slots => "/slots",
            Self::Metrics => "/metrics",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  ember-generate serve                                 the newest run, on http://127.0.0.1:8080
  ember-generate serve --from runs/mine --port 9000    another run, another port
  curl localhost:8080/v1/completions -d '{\"prompt\": \"Once upon a time\", \"max_tokens\": 40}'

Open the address in a browser to write with the model. The API is OpenAI's and llama.cpp's: docs/serving.md.";

pub(crate) fn run(args: &ServeArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    let notes = Notes::new(common.quiet);
    let keys = args.api_key_file.as_deref().map(guard::keys).transpose()?;
    check_exposed(args, keys.is_some())?;
    start_pool()?;
    let named = args.model.iter().map(NamedFolder::resolved).collect::<Result<Vec<_>>>()?;
    if args.serves_run() {
        run_folder::find(args.from.as_deref())?; // report a missing run before waiting for the device
    }
    let selected = device::select(common.device)?;
    notes.say(selected.line());
    let options = LoadOptions {
        device: selected.device.clone(),
        weights: args.weights.chosen,
        tokens_per_step: args.tokens_per_step.into(),
        cache_bytes: (args.cache_mib as usize) << 20,
        max_bytes: (args.models_mib as usize) << 20,
    };
    let log = args.log_requests.as_deref().map(log::RequestLog::open).transpose()?;
    let (models, first) = open(args, named, &options, notes)?;
    let setup = Setup {
        from: args.from.as_deref().unwrap_or(&first.folder).display().to_string(),
        log,
        seed: common.seed,
        device: common.device,
        device_kind: selected.id.split(':').next().unwrap_or_default().to_owned(),
        device_name: selected.name,
    };
    print_models(&models, &first, &notes);
    drop(first); // so that it can be evicted like any other
    let listener = TcpListener::bind(SocketAddr::new(args.host, args.port))
        .with_context(|| format!("cannot listen on {}:{}; choose another --port", args.host, args.port))?;
    let address = listener.local_addr().context("cannot listen")?;
    let guard = guard::Guard::new(keys, args.cors.clone());
    let server = Arc::new(Server::new(models, setup, args.at_once.into(), args.queue.into()));
    let app = router(Arc::clone(&server), Arc::new(guard), &args.without);
    let runtime = listen::runtime()?;
    announce(address, args, common, &notes)?;
    let _wait = CompileProgress::in_lines(KERNELS_OF_A_TEXT, common.quiet);
    listen::serve(runtime, listener, app, interrupt, move || server.is_idle())?;
    Ok(Outcome::Done)
}

/// Refuses to serve everybody who reaches the address, unless that is asked for.
fn check_exposed(args: &ServeArgs, has_keys: bool) -> Result<()> {
    ensure!(
        args.host.is_loopback() || has_keys || args.insecure,
        UsageError::new(format!(
            "--host {}: others can reach this address; add --api-key-file FILE, or --insecure to let everybody use the model",
            args.host
        ))
    );
    Ok(())
}

/// Starts the global pool, as large as that of the commands: the engines run on threads outside the
/// latter, so they use the global one.
fn start_pool() -> Result<()> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(rayon::current_num_threads()).stack_size(16 << 20);
    pool.build_global().context("cannot start threads")
}

/// Says where the server listens.
fn announce(address: SocketAddr, args: &ServeArgs, common: &CommonArgs, notes: &Notes) -> Result<()> {
    notes.say(format!("listening on http://{address}; Ctrl-C stops the server once running requests have finished"));
    if args.port == 0 && common.quiet {
        // The caller has no other way to learn the port.
        let mut out = terminal::stdout();
        writeln!(out, "http://{address}")?;
        out.flush()?;
    }
    Ok(())
}

impl ServeArgs {
    /// Whether a run or checkpoint is served besides the models of `--model`.
    fn serves_run(&self) -> bool {
        self.model.is_empty() || self.from.is_some() || self.checkpoints
    }
}

/// The models to serve, including `named`. Loads the default model before the server listens, so
/// that its errors show at startup.
fn open(
    args: &ServeArgs,
    named: Vec<NamedFolder>,
    options: &LoadOptions,
    notes: Notes,
) -> Result<(Models, Arc<Model>)> {
    let load = |served| -> Result<(Models, Arc<Model>)> {
        let mut models = Models::new(served, options.clone())?;
        models.notes = notes;
        let first = models.load_default()?;
        Ok((models, first))
    };
    if !args.serves_run() {
        return load(Served { folders: named, run: None });
    }
    run_folder::find_and_open(args.from.as_deref(), |found| {
        let mut served = names::served(args.from.as_deref(), found.folder, args.checkpoints)?;
        served.folders.extend(named.clone());
        load(served)
    })
}

/// Prints the loaded model, the size of its cache, and the other available models.
fn print_models(models: &Models, first: &Model, notes: &Notes) {
    notes.say(format!("model: {} ({})", first.name, first.folder.display()));
    notes.say(format!(
        "KV cache: {} positions for running texts and cached prefixes, {} MiB",
        first.usable_positions,
        first.memory.cache_bytes() >> 20
    ));
    for NamedFolder { name, .. } in models.all().iter().skip(1) {
        notes.say(format!("model: {name}, loaded on first use"));
    }
}

/// All routes of the server.
fn router(server: Arc<Server>, guard: Arc<guard::Guard>, without: &[Optional]) -> Router {
    let (has, off) = (|what| !without.contains(&what), || async { error::ApiError::disabled() });
    let absent: Vec<&str> = without.iter().map(|what| what.path()).collect();
    let also_absent = absent.clone();
    let openai_routes = Router::new()
        .route("/models", get(info::models))
        .route("/models/{*model}", get(info::model))
        .route("/chat/completions", post(chat::chat_completions))
        .route("/chat/completions/input_tokens", post(chat::input_tokens));
    Router::new()
        .nest("/v1", openai_routes.clone())
        .merge(openai_routes)
        .route("/v1/completions", post(completions::completions))
        .route("/completion", post(llama::completion))
        .route("/completions", post(llama::completion))
        .route("/apply-template", post(chat::apply_template))
        .route("/tokenize", post(info::tokenize))
        .route("/detokenize", post(info::detokenize))
        .route("/tokenizer_info", get(info::tokenizer_info))
        .route("/props", get(info::props))
        .route("/slots", if has(Optional::Slots) { get(info::slots) } else { get(off) })
        .route("/metrics", if has(Optional::Metrics) { get(metrics::metrics) } else { get(off) })
        .route("/health", get(info::health))
        .route("/openapi.json", get(|| openapi::openapi(absent)))
        .route("/docs", get(|| openapi::docs(also_absent)))
        .merge(if has(Optional::Page) { Router::new().route("/", get(playground::page)) } else { Router::new() })
        .fallback(|| async { error::ApiError::not_found() })
        .method_not_allowed_fallback(|| async { error::ApiError::method() })
        .layer(middleware::from_fn_with_state(guard, guard::guard))
        .layer(middleware::from_fn_with_state(Arc::clone(&server), in_progress::count))
        .with_state(server)
}
