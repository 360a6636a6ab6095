//! `ember-generate text`: continues prompts, as a stream for people or as JSON for programs.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};

use anyhow::{Context, Error, Result, anyhow, ensure};
use ember_data::numbers::counted;
use ember_model::{Gpt, KvCache, folder::weights_checksum};

use super::draft;
use super::loaded::{Loaded, folder_settings};
use super::prompts::{self, Prompt, PromptInput, UnencodedPrompt};
use super::session::{Batch, Cutoffs, Session};
use super::trace_file::{Header, HeaderPrompt, Machine, PlannedBatch, TraceSink, TraceWriter};
use super::{lines::without_line_end, progress::Progress, text_args::TextArgs, text_output, totals::Totals};
use ember_cli::program::{CommonArgs, Notes, Outcome, OutputFormat, UsageError, exit_code, say_error};
use ember_cli::terminal;
use ember_decoding::batches::{self, InOrder};
use ember_decoding::config::GenerationConfig;
use ember_decoding::generator::{Generator, Written};
use ember_decoding::memory::{MAX_ROWS, batch_size, prompts_in_cache};
use ember_decoding::processors::{LogitsProcessor, Step};
use ember_decoding::semantics::{self, Difference};
use ember_decoding::sequences::{ModelSequences, Sequences};
use ember_host::interrupt::Interrupt;
use ember_host::memory::{ASSUMED_BYTES, available_bytes};

pub(super) fn run(args: &TextArgs, common: &CommonArgs, interrupt: &Interrupt) -> Result<Outcome> {
    args.check(common.format)?;
    let notes = Notes::new(common.quiet);
    let grammar = args.constraint.grammar()?;
    // Whether the strategy would ignore a knob depends on the folder's file too.
    let settings = folder_settings(args.from.as_deref())?;
    args.check_with(&GenerationConfig::resolve(&args.knobs_without_words(), &settings)?.0)?;
    let unencoded = unencoded_prompts(args)?;
    let are_ids =
        |prompts: &Vec<UnencodedPrompt>| prompts.iter().all(|prompt| matches!(prompt.input, PromptInput::Ids(_)));
    let ids_suffice = unencoded.as_ref().is_some_and(are_ids);
    let (loaded, defaults) =
        Loaded::with_defaults(args.from.as_deref(), ids_suffice, args.weights.chosen, common, &notes)?;
    ensure!(
        !args.stream || loaded.tokenizer.is_some(),
        UsageError::new("--stream needs a tokenizer, and the checkpoint holds none; drop --stream")
    );
    let config = args.config(&loaded, defaults, common.seed, &notes)?;
    let draft = args.draft.as_deref().map(|path| draft::load(path, &loaded, args.weights.chosen, common, &notes));
    let draft = draft.transpose()?;
    let mut session = Session::new(&loaded, config, grammar, interrupt)?;
    if let Some(draft) = &draft {
        session.generator = session.generator.drafted_by(draft);
    }
    if let Some(constraint) = session.generator.constraint() {
        constraint.warnings().iter().for_each(|warning| notes.say(warning));
    }
    let continue_on_error = args.trace.is_none() && unencoded.as_ref().is_some_and(|prompts| prompts.len() > 1);
    let (format, total, refused) = (common.format, Totals::default(), BTreeSet::new());
    let mut writer = Writer { session, args, format, notes, total, continue_on_error, refused };
    let Some(unencoded) = unencoded else { return writer.prompt_loop() };
    let (asked, prompts) = (unencoded.len(), writer.encode_all(unencoded)?);
    if args.explain_semantics {
        return writer.explain_semantics(&prompts[0]);
    }
    let outcome = if prompts.is_empty() { Outcome::Done } else { writer.write_all(&prompts)? };
    let refused = writer.refused.len();
    ensure!(
        refused == 0 || outcome == Outcome::Interrupted,
        "{refused} of {} could not be continued, for the reasons above; correct or remove them",
        counted(asked, "prompt")
    );
    Ok(outcome)
}

/// The prompts that are given; `None` if the terminal is to prompt for them.
fn unencoded_prompts(args: &TextArgs) -> Result<Option<Vec<UnencodedPrompt>>> {
    if let Some(path) = &args.prompts {
        return prompts::read("--prompts", path).map(Some);
    }
    let input = prompts::from_command_line(args.prompt.as_deref(), args.prompt_ids.as_deref())?;
    ensure!(
        input.is_some() || args.trace.is_none(),
        UsageError::new("--trace needs a prompt; add PROMPT, --prompt-ids or --prompts")
    );
    let place = args.prompt_ids.is_some().then(|| "--prompt-ids".to_owned());
    Ok(input.map(|input| vec![UnencodedPrompt { place, id: None, input }]))
}

/// Writes continuations to standard output.
struct Writer<'a> {
    session: Session<'a>,
    args: &'a TextArgs,
    format: OutputFormat,
    notes: Notes,
    total: Totals,
    /// Whether to continue with the other prompts when one fails.
    continue_on_error: bool,
    /// The numbers of the prompts that failed.
    refused: BTreeSet<usize>,
}

impl Writer<'_> {
    /// Encodes the prompts. With `continue_on_error`, a failing prompt is reported at once, and is
    /// an error at the end.
    fn encode_all(&mut self, unencoded: Vec<UnencodedPrompt>) -> Result<Vec<Prompt>> {
        if let Some(ids) = &self.args.prompt_ids {
            self.session.loaded.check_ids("--prompt-ids", ids)?;
        }
        let mut prompts = Vec::new();
        for (index, prompt) in unencoded.into_iter().enumerate() {
            match self.encode(index, prompt) {
                Err(error) if self.continue_on_error => self.refuse(index, &error),
                prompt => prompts.push(prompt?),
            }
        }
        Ok(prompts)
    }

    fn encode(&self, index: usize, prompt: UnencodedPrompt) -> Result<Prompt> {
        prompt.encode(index, self.session.loaded, self.args.special.chosen)
    }

    fn prompt_loop(&mut self) -> Result<Outcome> {
        self.notes.say("write a beginning and press Enter; Ctrl-D ends");
        for prompt_index in 0.. {
            if self.notes.are_shown() {
                let _ = write!(terminal::stderr(), "> ");
            }
            let mut line = Vec::new();
            let read = self.session.interrupt.while_waiting(|| io::stdin().lock().read_until(b'\n', &mut line));
            let Some(read) = read else { return Ok(Outcome::Interrupted) };
            if read.context("cannot read the prompt from the terminal")? == 0 {
                self.notes.say("");
                break;
            }
            // A failing prompt does not end the loop: report it, and ask for another.
            let typed = String::from_utf8(line)
                .map_err(|_| anyhow!("what was typed is not UTF-8 text; set the terminal to UTF-8"));
            let input = typed.map(|line| PromptInput::Text(without_line_end(&line).to_owned()));
            let unencoded = input.map(|input| UnencodedPrompt { place: None, id: None, input });
            let prompt = unencoded.and_then(|prompt| self.encode(prompt_index, prompt));
            match prompt.and_then(|prompt| self.answer(&prompt)) {
                Err(error) if !error.chain().any(|cause| cause.is::<io::Error>()) => say_error(&error),
                answered => answered?,
            }
        }
        Ok(Outcome::Done)
    }

    /// One iteration of the prompt loop. Ctrl-C ends the text, not the loop; at the prompt it ends
    /// the program.
    fn answer(&mut self, prompt: &Prompt) -> Result<()> {
        self.total = Totals::default();
        let batch = Batch { prompts: vec![prompt], first: 0, count: self.num_sequences(), cutoffs: Cutoffs::default() };
        let written = self.write_and_show(&batch, None);
        self.session.interrupt.clear();
        written?;
        self.print_totals(1);
        Ok(())
    }

    fn refuse(&mut self, index: usize, error: &Error) {
        say_error(error);
        self.refused.insert(index);
    }

    fn num_sequences(&self) -> usize {
        self.session.generator.config().num_return_sequences
    }

    /// Writes every continuation of every prompt, in the prompts' order.
    fn write_all(&mut self, prompts: &[Prompt]) -> Result<Outcome> {
        let batches = self.batches(prompts);
        let mut trace = None;
        if let Some(path) = &self.args.trace {
            let header = self.header(prompts, &batches)?.to_line()?; // before the file is created
            trace.insert(TraceWriter::create(path)?).line(header)?;
        }
        let mut outcome = Outcome::Done;
        if let ([prompt], false) = (prompts, self.continue_on_error) {
            // One prompt: its sequences are shown batch by batch, a single one is streamed.
            for PlannedBatch { first, count, .. } in batches {
                let batch = Batch { prompts: vec![prompt], first, count, cutoffs: Cutoffs::default() };
                outcome = self.write_and_show(&batch, trace.as_mut()).map_err(|error| prompt.blame(error))?;
                if outcome == Outcome::Interrupted {
                    break;
                }
            }
        } else {
            outcome = self.write_in_order(prompts, &batches, trace.as_mut())?;
        }
        if let Some(trace) = trace {
            trace.finish()?;
        }
        let continued = prompts.iter().filter(|prompt| !self.refused.contains(&prompt.index)).count();
        self.print_totals(continued * self.num_sequences());
        Ok(outcome)
    }

    /// Plans the batches, longest prompts first. If a prompt has more sequences than fit in a
    /// batch, each prompt gets several batches of its own.
    fn batches(&self, prompts: &[Prompt]) -> Vec<PlannedBatch> {
        let each = self.num_sequences();
        let config = self.session.generator.config();
        if (prompts.len() == 1 || each > MAX_ROWS) && !config.strategy.ranks_texts() {
            let parts = |prompt| {
                (0..each).step_by(MAX_ROWS).map(move |first| {
                    let count = MAX_ROWS.min(each - first);
                    PlannedBatch { prompts: vec![prompt], first, count }
                })
            };
            return (0..prompts.len()).flat_map(parts).collect();
        }
        let memory = if self.session.loaded.on_gpu { ASSUMED_BYTES } else { available_bytes() };
        let lengths: Vec<usize> = prompts.iter().map(|prompt| prompt.ids.len()).collect();
        let model = &self.session.loaded.model;
        let positions = KvCache::most_slots(model.config().heads(), &model.device());
        let fits = |longest| {
            let rows = each.max(config.num_beams);
            let in_memory = batch_size(memory, model.config(), longest, rows, config.max_new_tokens);
            in_memory.min(prompts_in_cache(positions, model.config(), longest, rows, config.max_new_tokens))
        };
        batches::by_length(&lengths, fits)
            .into_iter()
            .map(|prompts| PlannedBatch { prompts, first: 0, count: each })
            .collect()
    }

    fn header(&self, prompts: &[Prompt], batches: &[PlannedBatch]) -> Result<Header> {
        let loaded = self.session.loaded;
        let stated = |prompt: &Prompt| HeaderPrompt { prompt: prompt.text.clone(), prompt_ids: prompt.ids.clone() };
        Ok(Header {
            event: "run".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            checkpoint: loaded.folder.clone(),
            weights: weights_checksum(&loaded.folder)?,
            weight_type: loaded.model.weight_type(),
            device: loaded.device_kind.clone(),
            machine: Some(Machine::with(&loaded.device_name)),
            special_tokens: self.args.special.chosen,
            config: self.session.generator.config().clone(),
            grammar: self.session.generator.constraint().map(|constraint| constraint.grammar().clone()),
            prompts: prompts.iter().map(stated).collect(),
            batches: batches.to_vec(),
        })
    }

    /// Runs the batches in their planned order, and shows answers in the prompts' order, each as
    /// soon as those before it are ready.
    fn write_in_order(
        &mut self,
        prompts: &[Prompt],
        batches: &[PlannedBatch],
        mut trace: Option<&mut TraceWriter>,
    ) -> Result<Outcome> {
        let each = self.num_sequences();
        let progress = Progress::new("prompts", prompts.len(), &self.notes);
        // By prompt, then by the first of its sequences: several batches may share a prompt's.
        let keys = batches.iter().flat_map(|batch| batch.prompts.iter().map(move |&number| (number, batch.first)));
        let mut in_order = InOrder::new(keys);
        for PlannedBatch { prompts: numbers, first, count } in batches {
            let batched = numbers.iter().map(|&number| &prompts[number]);
            let batched: Vec<&Prompt> = batched.filter(|prompt| !self.refused.contains(&prompt.index)).collect();
            let batch = Batch { prompts: batched, first: *first, count: *count, cutoffs: Cutoffs::default() };
            let sink = trace.as_deref_mut().map(|trace| trace as &mut dyn TraceSink);
            let mut answers = self.write_batch(&batch, sink)?;
            self.total.add(&answers);
            for &number in numbers {
                let of_prompt = |answer: &mut Written| answer.prompt == prompts[number].index;
                let of_prompt: Vec<Written> = answers.extract_if(.., of_prompt).collect();
                for ready in in_order.put((number, *first), (number, of_prompt)) {
                    progress.aside(|| self.show(&ready, prompts))?;
                }
            }
            if first + count == each {
                progress.advance(numbers.len());
            }
            if self.session.interrupt.requested() {
                in_order.into_rest().try_for_each(|rest| progress.aside(|| self.show(&rest, prompts)))?;
                return Ok(Outcome::Interrupted);
            }
        }
        Ok(Outcome::Done)
    }

    /// Writes a batch. If that fails and `continue_on_error` is set, each of its prompts is written
    /// alone, and one that still fails is refused.
    fn write_batch(&mut self, batch: &Batch, trace: Option<&mut dyn TraceSink>) -> Result<Vec<Written>> {
        let mut all = Vec::new();
        if batch.prompts.is_empty() {
            return Ok(all);
        }
        let error = match self.session.write(batch, None, trace) {
            Err(error) if self.continue_on_error && exit_code(&error) != 2 => error,
            written => return written,
        };
        if let [prompt] = batch.prompts[..] {
            self.refuse(prompt.index, &prompt.blame(error));
            return Ok(all);
        }
        for prompt in &batch.prompts {
            all.extend(self.write_batch(&Batch { prompts: vec![prompt], ..batch.clone() }, None)?);
        }
        Ok(all)
    }

    fn show(&self, (number, answers): &(usize, Vec<Written>), prompts: &[Prompt]) -> Result<()> {
        let mut out = terminal::stdout();
        for answer in answers {
            self.show_one(answer, &prompts[*number], number + answer.number > 0, &mut out)?;
        }
        Ok(out.flush()?)
    }

    fn show_one(&self, answer: &Written, prompt: &Prompt, with_separator: bool, out: &mut dyn Write) -> Result<()> {
        if with_separator && self.format == OutputFormat::Text {
            writeln!(out, "---")?;
        }
        let (loaded, logprobs) = (self.session.loaded, self.args.logprobs.is_some());
        let json = || text_output::json(answer, prompt, loaded, logprobs);
        self.format.write_line(out, json, || text_output::text(answer, loaded))
    }

    /// Continues one prompt and shows the results; a single text for people is streamed.
    fn write_and_show(&mut self, batch: &Batch, trace: Option<&mut TraceWriter>) -> Result<Outcome> {
        let mut out = TrackedWriter { out: terminal::stdout(), has_written: false };
        let prompt = batch.prompts[0];
        let streams =
            self.format == OutputFormat::Text && self.num_sequences() == 1 && self.session.loaded.tokenizer.is_some();
        if streams && self.args.prompt.is_some() && self.notes.are_shown() && io::stdout().is_terminal() {
            write!(out, "{}", prompt.text.as_deref().unwrap_or_default())?;
        }
        let stream = streams.then_some(&mut out as &mut dyn Write);
        let written = self.session.write(batch, stream, trace.map(|trace| trace as &mut dyn TraceSink));
        if streams && (written.is_ok() || out.has_written) {
            writeln!(out)?; // also before an error message
        }
        let answers = written?;
        self.total.add(&answers);
        if !streams {
            for answer in &answers {
                self.show_one(answer, prompt, answer.number > 0, &mut out)?;
            }
        }
        out.flush()?;
        Ok(if self.session.interrupt.requested() { Outcome::Interrupted } else { Outcome::Done })
    }

    /// Shows where other stacks would give the next token another distribution, with numbers.
    fn explain_semantics(&self, prompt: &Prompt) -> Result<Outcome> {
        let (loaded, config) = (self.session.loaded, self.session.generator.config());
        let differences = compare_semantics(&loaded.model, &self.session.generator, &prompt.ids)?;
        let mut out = terminal::stdout();
        if self.format == OutputFormat::Json {
            for difference in &differences {
                writeln!(out, "{}", serde_json::to_string(difference)?)?;
            }
            return Ok(Outcome::Done);
        }
        let name = |id| loaded.token_text(id).map_or_else(|| format!("#{id}"), |text| format!("{text:?}"));
        for line in semantics::explain(config, &differences, &name) {
            writeln!(out, "{line}")?;
        }
        Ok(Outcome::Done)
    }

    /// Prints the totals of the `asked` texts.
    fn print_totals(&self, asked: usize) {
        let context_length = self.session.loaded.model.config().context_length;
        self.total.lines(asked, context_length).iter().for_each(|line| self.notes.say(line));
    }
}

/// How other stacks would choose the token after the prompt, with the same knobs and grammar.
fn compare_semantics(model: &Gpt, generator: &Generator, prompt: &[u32]) -> Result<Vec<Difference>> {
    let step = Step { prompt, generated: &[] };
    let mut logits = ModelSequences::new(model, &[prompt], prompt.len()).logits()?;
    if let Some(constraint) = generator.constraint() {
        constraint.process(&step, &mut logits);
    }
    Ok(semantics::compare(&logits, &step, generator.config()))
}

/// A writer that records whether anything was written to `out`.
struct TrackedWriter<W> {
    out: W,
    has_written: bool,
}

impl<W: Write> Write for TrackedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.has_written |= !bytes.is_empty();
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use burn::tensor::Device;
    use ember_data::tokenizer::Tokenizer;
    use ember_decoding::{config::Strategy, constraint::Grammar};
    use ember_model::GptConfig;

    use super::*;

    #[test]
    fn stacks_are_compared_by_the_tokens_that_the_grammar_allows() {
        let tokenizer = Tokenizer::chars(&('a'..='k').collect(), false).unwrap();
        let model = Gpt::new(&GptConfig::new(tokenizer.vocab_size(), 16, 1, 1, 8), 3, &Device::flex()).unwrap();
        let config = GenerationConfig { strategy: Strategy::Sample, temperature: 0.8, ..Default::default() };
        let free = Generator::new(&model, Some(&tokenizer), config).unwrap();
        let possible = |generator: &Generator| {
            let differences = compare_semantics(&model, generator, &[1]).unwrap();
            differences.iter().flat_map(|other| [other.possible_here, other.possible_there]).collect::<Vec<_>>()
        };
        assert_eq!(possible(&free), [11; 4]);
        assert_eq!(possible(&free.held_to(Grammar::regex("regex", "[bc]d").unwrap()).unwrap()), [2; 4]);
    }
}
