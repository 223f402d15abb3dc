"""The model: a network with numbers, which learns, predicts and lets itself be looked into."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from undivided.engines.choice import make_engine
from undivided.engines.engine import Packed, Several, inputs_of
from undivided.errors import ArgumentError, DataError, ModelFileError, NonFiniteError, ShapeError
from undivided.generation import Choice, Scores, continued, going_on, shifted, up_to_their_ends
from undivided.network import Network
from undivided.padding import filled_up, real_tokens, without_padding
from undivided.parameters import Parameters, Substituted
from undivided.plan.plan import Input, Ragged, show_shape
from undivided.samples import (
    Samples,
    checked_gradient,
    checked_samples,
    longest_sample,
    pair_of,
    taken,
)
from undivided.targets import Targets, checked_targets, weighted_by_class
from undivided.training.augmentation import Augmentation
from undivided.training.history import Epoch, Evaluation, TrainingState
from undivided.training.metrics import Metric, metrics_for
from undivided.training.progress import Calling, Lines, Progress
from undivided.training.schedules import learning_rate_at

if TYPE_CHECKING:
    from undivided.export import Exported
    from undivided.view import View
    from undivided.weights import Match, WeightsReport

__all__ = ["Model", "load"]

# N samples, C classes, H heads, S tokens; x is [N, *network.input], y what the loss wants of it.

Labelled = tuple[Samples, Targets]

Gradients = dict[str, np.ndarray]
"""Parameter name → gradient of the same shape."""


class Model:
    """A network with numbers.

        model = Model(network, seed=1)
        history = model.fit(data.train, test=data.test)
        model.predict(data.test.x)

    `seed`, `threads` and `engine` are the network's own unless given. The environment variable
    UNDIVIDED_THREADS counts where neither the argument nor the network says how many. `dtype`
    is float32; the reference engine also computes in float64, to be measured against.

    `x` is [N, *network.input]: bytes or floating point. Where the input has an axis of no fixed
    length, it may also be a list of N arrays, each of its own length.
    """

    def __init__(
        self,
        network: Network,
        seed: int | None = None,
        threads: int | None = None,
        engine: Literal["native", "reference"] | None = None,
        dtype: Literal["float32", "float64"] = "float32",
    ) -> None:
        from undivided.training.generators import GENERATORS
        from undivided.training.initial import initialize

        if not isinstance(network, Network):
            raise ArgumentError(
                f"The 'network' of Model must be a Network. Got {type(network).__name__}. "
                "undivided.recipe(name), read(path) and parse(text) give one.",
                argument="network",
            )
        self.network = network
        self.seed = _replaced(network.train, seed=seed).seed
        execution = _replaced(network.execution, engine=engine, threads=threads)
        self.engine = execution.engine
        self.plan = network.plan()
        """What the network does, as primitive operations."""
        self._engine = make_engine(self.plan, self.engine, dtype, execution.threads)
        self._engine.seed = self.seed
        self._state = TrainingState(GENERATORS[network.train.generator](self.seed))
        for name, values in initialize(
            self.plan, self._state.generator, network.train.initial
        ).items():
            self._engine.parameters[name][...] = values
        self.parameters = Parameters(self._engine.parameters)
        self.gradients: Gradients = {}
        """What pullbacks have added up since `clear_gradients`."""
        self.class_names: tuple[str, ...] | None = None
        """What the classes are called, where that is known; kept in the model's file."""

    # What it is.

    @property
    def threads(self) -> int | None:
        """How many threads the engine uses; None where it leaves that to NumPy."""
        return getattr(self._engine, "threads", None)

    @property
    def instruction_set(self) -> str | None:
        """What the engine's kernels are compiled for; None where it leaves that to NumPy."""
        return getattr(self._engine, "instruction_set", None)

    @property
    def dtype(self) -> np.dtype:
        """The type of the parameters: float32, or float64 in the reference engine."""
        return next((array.dtype for array in self._engine.parameters.values()), np.dtype("f4"))

    @property
    def epochs(self) -> int:
        """How many epochs it has been trained."""
        return self._state.epochs

    @property
    def steps(self) -> int:
        """How many steps it has been trained."""
        return self._state.steps

    @property
    def history(self) -> list[Epoch]:
        """The epochs of every `fit` so far."""
        return list(self._state.history)

    def __repr__(self) -> str:
        threads = "" if self.threads is None else f", {self.threads} threads"
        trained = f"trained {self.epochs} epochs" if self.steps else "not trained"
        return (
            f"Model({self.network.name}: {self.plan.parameter_count:,} parameters, "
            f"{self.engine} engine {self.dtype}{threads}, {trained})"
        )

    @property
    def _metrics(self) -> tuple[Metric, ...]:
        """What tests say besides the loss."""
        return self.network.metrics or metrics_for(self.network.loss)

    # Learning.

    def fit(
        self,
        train: Any,
        test: Any = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        log: str | os.PathLike[str] | Literal[False] | None = None,
        progress: Progress | bool | None = None,
        callbacks: Sequence[Progress | Callable[[Epoch], object]] = (),
        class_weights: Mapping[int, float] | Sequence[float] | None = None,
    ) -> list[Epoch]:
        """Train, and return one entry an epoch: `.loss`, `.seconds`, `.test_accuracy`, `.epoch`.

        `train` and `test` are splits (`data.train`) or pairs (x, y). What is not given is the
        network's own; a `learning_rate` given here takes the place of the network's from now
        on. `log=False` writes none where the network names one. `progress=True` prints a line
        an epoch; a `Progress` is told more. So are `callbacks`: each a `Progress`, or a function
        that is called with every epoch's entry; `StopTraining` raised there ends the training.

        `class_weights` say how much the targets of a class count: a number for each class, or of
        some classes by number, the others counting 1.

        Where the network says `validation_split` and no `test` is given, the last of the samples
        are kept for it.

        A second `fit` goes on where the first stopped: 2 epochs and 3 are the same, bit for
        bit, as 5. So does one after Ctrl-C, which stops between two steps.
        """
        from undivided.training.logs import Log
        from undivided.training.loop import train as run

        samples = self._samples(train, "train")
        tested = None if test is None else self._samples(test, "test")
        settings = _replaced(self.network.train, epochs=epochs, batch_size=batch_size)
        if tested is None and settings.validation_split:
            samples, tested = _split(samples, settings.validation_split)
        if class_weights is not None:
            samples = samples[0], weighted_by_class(samples[1], class_weights, self.plan)
        augment = self._augmentation(settings.augment, samples[0])
        if learning_rate is not None:
            optimizer = _replaced(self.network.optimizer, learning_rate=learning_rate)
            self.network = dataclasses.replace(self.network, optimizer=optimizer)
            self.plan = dataclasses.replace(self.plan, optimizer=optimizer)
        watchers: list[Progress] = [
            each if isinstance(each, Progress) else Calling(each) for each in callbacks
        ]
        if progress:
            watchers.append(Lines() if progress is True else progress)
        path = settings.log if log is None else log
        with contextlib.ExitStack() as opened:
            if path:
                metrics = [metric.label for metric in self._metrics]
                log_file = Log(path, continued=self.epochs > 0, metrics=metrics)
                watchers.insert(0, opened.enter_context(log_file))
            return run(
                self._engine,
                self._state,
                samples,
                tested,
                epochs=settings.epochs,
                # Samples go through an engine in small groups, and a step's gradients are added
                # up group by group: batches that make a step together are one batch.
                # And that is never larger than the set, whatever was asked for.
                batch_size=min(
                    settings.batch_size * settings.gradient_accumulation_steps, len(samples[0])
                ),
                learning_rate=self.network.optimizer.learning_rate,
                metrics=self._metrics,
                augment=augment,
                stopping=settings.early_stopping,
                watchers=watchers,
                diagnose=self._diagnose,
            )

    def loss_and_gradients(self, x: Any, y: Any) -> tuple[float, Gradients]:
        """The mean loss of the samples, and its gradient for each parameter."""
        return self._engine.loss_and_gradients(*self._samples((x, y), ""))

    def vjp(self, x: Any) -> tuple[np.ndarray, Callable[[Any], tuple[np.ndarray, Gradients]]]:
        """The scores y of x, and `pullback`: put a loss of your own behind the network.

            y, pullback = model.vjp(x)
            dx, gradients = pullback(dy)        dy = ∂loss/∂y, of y's shape

        `gradients` are ∂loss/∂parameter, with the parameters as they were at `vjp`; they are
        also added to `model.gradients`, until `model.clear_gradients()`.
        """
        samples, _ = copy.deepcopy(self._inputs(x))
        weights = {name: values.copy() for name, values in self.parameters.items()}
        y = self.logits(samples)

        def pullback(dy: Any) -> tuple[np.ndarray, Gradients]:
            seed = checked_gradient(dy, y.shape, self.dtype)
            with Substituted(self.parameters, weights):
                dx, gradients = self._pull_back(samples, seed)
            for name, gradient in gradients.items():
                self.gradients[name] = self.gradients.get(name, 0) + gradient
            return dx, gradients

        return y, pullback

    def clear_gradients(self) -> None:
        """Forget what pullbacks have added up."""
        self.gradients = {}

    def apply_gradients(self, learning_rate: float | None = None) -> None:
        """Take one step of the network's optimizer along `model.gradients`, and keep them.

        `learning_rate` is for this step alone.
        """
        optimizer, state = self.network.optimizer, self._state
        if not self.gradients:
            raise ArgumentError("There are no gradients to apply: call a pullback first.")
        for name, gradient in self.gradients.items():
            if not np.isfinite(gradient).all():
                raise NonFiniteError(f"The gradient of {name!r} is not finite; nothing changed.")
        if learning_rate is not None:
            optimizer = _replaced(optimizer, learning_rate=learning_rate)
        rate = learning_rate_at(optimizer.learning_rate, state.steps, state.end)
        optimizer.step(
            self.plan.parameters,
            self.parameters,
            self.gradients,
            self._engine.slots,
            state.optimizer_steps + 1,
            rate,
        )
        state.steps += 1
        state.optimizer_steps += 1

    # Saying what it has learned.

    def predict(self, x: Any, mask: Any = None, lengths: Any = None) -> Any:
        """What the network says of each sample, in the terms of its targets.

        Where targets are classes, the class with the highest score, the first of equals: [N],
        or [N, S] where there is one for each position. Where each output is a yes or no, 1 or 0.
        Else the values that the last layer gives. A list of N arrays where lengths differ.

        Which tokens of x count and which only fill up is said by `mask`, 0 or 1 for each token,
        [N, S], by `lengths`, [N], or by the padding id of the network's Embedding.

        A network of encoders and decoders with one input gives what `generate` does.
        """
        if self.plan.inputs[-1].begins_with is not None and not isinstance(x, tuple):
            return self.generate(x, mask=mask, lengths=lengths)
        scores, kind = self.logits(x, mask, lengths), self.plan.loss.targets
        if kind == "values":
            return scores
        if isinstance(scores, list):
            return [_decided(each, kind) for each in scores]
        return _decided(scores, kind)

    def predict_proba(self, x: Any, mask: Any = None, lengths: Any = None) -> Any:
        """The probability of each class: softmax of the scores, [N, C] or [N, S, C].

        Where each output is a yes or no of its own, the probability of yes.
        """
        from undivided.training.evaluation import probabilities

        scores, loss = self.logits(x, mask, lengths), self.plan.loss
        if loss.link is None:
            raise ArgumentError(
                f"predict_proba is for classes. {self.network.name} has the loss {loss}, whose "
                "targets are values: predict(x) gives them."
            )
        if isinstance(scores, list):
            return [probabilities(each, loss.link) for each in scores]
        return probabilities(scores, loss.link)

    def logits(self, x: Any, mask: Any = None, lengths: Any = None) -> Any:
        """What the last layer gives for each sample: scores of classes, or values.

        Where it gives some for each token of one array that has padding, they are 0 there.
        """
        from undivided.training.evaluation import predict

        samples, real = self._inputs(x, mask=mask, lengths=lengths)
        if not len(samples):
            if self._is_ragged:
                return []
            return np.zeros((0, *self.plan.output.shape), self.dtype)
        return _joined(predict(self._engine, samples), isinstance(x, np.ndarray), real)

    def generate(
        self,
        x: Any,
        most: int | None = None,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        mask: Any = None,
        lengths: Any = None,
        on_token: Callable[[int, int], object] | None = None,
    ) -> Any:
        """What the network goes on with: ids [N, T], or a list of N arrays for a list.

        A network of encoders and decoders is given its sources and begins its targets, up to
        `most` tokens of each: else as many as the source has, or where targets have an end (the
        padding id) as many as the network's input may have. Behind the end stands the padding id.

        A causal language model is given what its sequences begin with, ids [N, S], [S] or a list,
        and goes on by `most` tokens; it sees as many of the last tokens as its input declares.

        With a `temperature` of 0 each token is the most likely one. Else it is drawn by
        softmax(scores / temperature), among the `top_k` most likely and among as few as have
        `top_p` of the probability together.

        `on_token(sample, token)` is called with each token as soon as it is chosen.
        """
        choice = Choice(temperature, top_k, top_p, seed)
        target = self.plan.inputs[-1]
        if len(self.plan.inputs) > 1 and target.begins_with is None:
            raise ArgumentError(
                f"{self.network.name} is given its targets as an input of their own, so none are "
                "generated. predict((source, target)) says what it makes of both."
            )
        if target.vocabulary is not None and self.plan.output.width > target.vocabulary:
            raise ArgumentError(
                f"{self.network.name} scores {self.plan.output.width} ids, and its Embedding has "
                f"{target.vocabulary}: it could not go on from what it says. Make them as many."
            )
        if target.vocabulary is None or self.plan.output.shape[:-1] != target.shape:
            raise ArgumentError(
                f"generate is for networks that score ids for each token of a sequence of ids. "
                f"{self.network.name} gives {show_shape(self.plan.output.shape)}."
            )
        if target.begins_with is None:
            return self._continue(x, 100 if most is None else most, choice, on_token)
        source, _ = self._input(x, self.plan.input, "x", mask, lengths)
        parts = [np.asarray(each) for each in source]
        axis, end = self.plan.input.shape[0], target.padding_id
        longest = axis.most if isinstance(axis, Ragged) else axis
        limits = [most or (longest if end is not None and longest else len(p)) for p in parts]

        def begin(numbers: range) -> Scores:
            some = [parts[i] for i in numbers]
            kept = self._engine.begin(len(some), max(limits), some)
            if kept is not None:
                return going_on(kept)
            return lambda which, seen: self._engine.predict(Several([some[i] for i in which], seen))

        begun = [np.array([target.begins_with]) for _ in parts]
        found = continued(begin, begun, limits, choice, end=end, on_token=on_token)
        if isinstance(x, (list, tuple)) or not found:
            return found
        whole = np.full((len(found), max(map(len, found))), end or 0, np.int64)
        for row, ids in zip(whole, found, strict=True):
            row[: len(ids)] = ids
        return whole

    def _continue(
        self, x: Any, most: int, choice: Choice, on_token: Callable[[int, int], object] | None
    ) -> Any:
        """What a causal language model goes on with."""
        if isinstance(x, (str, bytes)):
            raise DataError(
                "x must be ids to go on from, [N, S], [S] or a list. Got text: of a model of bytes "
                "list(text.encode()) are its ids."
            )
        dense = not isinstance(x, (list, tuple)) or (len(x) > 0 and np.ndim(x[0]) == 0)
        single = dense and np.ndim(x) == 1
        self._let_lengths_differ()
        entry = self.plan.input
        begun = [np.asarray(each) for each in ([x] if single else x)]
        axis = entry.shape[0]
        window = axis.most if isinstance(axis, Ragged) else None
        for i, each in enumerate(begun):  # longer than the network sees is no mistake here
            if each.ndim == 1 and not len(each):
                raise DataError(f"x[{i}] must hold at least one token to go on with. Got none.")
            checked_samples([each[-(window or len(each)) :]], entry, self.dtype, f"x[{i}]")

        longest = max(map(len, begun), default=0) + most

        def begin(numbers: range) -> Scores:
            kept = self._engine.begin(len(numbers), min(longest, window or longest))
            if kept is not None:
                return going_on(kept)
            return lambda which, seen: self._engine.predict(seen)

        limits = [most] * len(begun)
        found = continued(begin, begun, limits, choice, window=window, on_token=on_token)
        return found[0] if single else np.stack(found) if dense else found

    def evaluate(self, split: Any) -> Evaluation:
        """`.loss`, `.accuracy` (a fraction) and `.metrics` on a split or a pair (x, y)."""
        from undivided.training.evaluation import evaluate

        return evaluate(self._engine, *self._samples(split, "split"), self._metrics)

    def example_batch(self, n: int = 8, seed: int = 0) -> tuple[Any, np.ndarray]:
        """`n` random samples (x, y) of the network's own shapes, to try it before there is data."""
        from undivided.examples import example_batch

        return example_batch(self.plan, n, seed)

    def attention_weights(self, x: Any, mask: Any = None, lengths: Any = None) -> dict[str, Any]:
        """Layer name → what each token attends to, [N, H, S, S]; the rows add up to 1.

        For sequences of different lengths, a list of N arrays [H, S, S] of real tokens.
        """
        samples, _ = self._inputs(x, mask=mask, lengths=lengths)
        dense = isinstance(samples, np.ndarray)
        if not dense or len(samples):
            weights = self._engine.attention_weights(samples)
            return {layer: _joined(of, dense) for layer, of in weights.items()}
        empty = {}
        for operation in self.plan.attentions:
            lengths = (self.plan.values[name].shape[0] for name in operation.inputs[:2])
            shape = [longest_sample(samples) if isinstance(n, Ragged) else n for n in lengths]
            heads = operation.attributes["heads"]
            empty[operation.layer] = np.zeros((0, heads, *shape), self.dtype)
        return empty

    def view(
        self,
        x: Any,
        y: Any = None,
        *,
        classes: Sequence[object] | None = None,
        vocabulary: Sequence[object] | None = None,
        tokens: Sequence[Sequence[object]] | None = None,
        source: str = "",
        limit: int = 8_000_000,
        mask: Any = None,
    ) -> View:
        """A page on which every head can be looked at for the samples `x`, which may be a split.

            model.view(data.test[:12])                  shown in a notebook
            model.view(x, y).save("heads.html")         one file, no network

        `y` are the targets, where they are known. `classes` names the classes, else
        `model.class_names` does; `vocabulary` names the ids of a network that takes ids, `tokens`
        the tokens of each sample, where they are called something else. `source` is a line about
        where the model comes from. The page holds about `limit` bytes of numbers and says what
        had to be left out. A `mask` says which tokens of x count where no targets are known.
        """
        from undivided.view import view_of

        samples: Samples
        targets: Targets | None = None
        if y is not None:
            samples, targets = self._samples((x, y), "")
        elif hasattr(x, "x") and hasattr(x, "y"):
            samples, targets = self._samples(x, "x")
        elif self.plan.inputs[-1].begins_with is not None and not isinstance(x, tuple):
            samples, targets = self._samples((x, self.generate(x)), "")
        else:
            samples, _ = self._inputs(x, mask=mask)
        return view_of(
            self,
            samples,
            targets,
            classes=self.class_names if classes is None else classes,
            vocabulary=vocabulary,
            tokens=tokens,
            source=source,
            limit=limit,
        )

    def load_weights(
        self, source: str | os.PathLike[str] | Mapping[str, Any], match: Match | None = None
    ) -> WeightsReport:
        """Take over weights that match in name and shape, and say of the others why they do not.

            report = model.load_weights("trained.safetensors", match={"encoder_*": "layers.*"})
            print(report)

        `source` is a safetensors file, whoever wrote it, or arrays by name (such as
        `undivided.from_torch` gives). `match` says under which name the source has a parameter:
        a mapping from ours to theirs, in which a `*` at the end stands for the same rest, or a
        function. What is not matched stays; the optimizer's averages do too.
        """
        from undivided.weights import load_into, read_tensors

        if not isinstance(source, (str, os.PathLike, Mapping)):
            raise ArgumentError(
                "The 'source' of load_weights must be the path of a safetensors file, or arrays "
                f"by name. Got {type(source).__name__}.",
                argument="source",
            )
        tensors = source if isinstance(source, Mapping) else read_tensors(source)
        return load_into(self.parameters, tensors, match)

    def save(self, path: str | os.PathLike[str], optimizer: bool = False) -> None:
        """Write a safetensors file (float32) with the network's text; `load` reads it back.

        The file is whole or not there: it is written beside its place and then renamed. With
        `optimizer` it holds what the optimizer keeps too, up to twice as much again: a `fit` of
        the loaded model then goes on to the bit as this one would.
        """
        from undivided.files import ModelFile, write_model

        state = self._state
        generator = tuple(state.generator.state)
        file = ModelFile(
            self.network,
            self.seed,
            state.epochs,
            state.steps,
            generator,
            dict(self.parameters),
            class_names=self.class_names,
        )
        if optimizer:
            file = dataclasses.replace(
                file, optimizer_steps=state.optimizer_steps, slots=self._engine.slots
            )
        write_model(path, file)

    def export_c(
        self, folder: str | os.PathLike[str], name: str = "undivided", check: Any = None
    ) -> Exported:
        """Print the forward pass as C99 into `folder`: what `undivided.export.c` does."""
        from undivided.export import c

        return c(self, folder, name, check)

    # What comes in, and what goes on behind.

    def _inputs(
        self, x: Any, where: str = "x", mask: Any = None, lengths: Any = None
    ) -> tuple[Samples, np.ndarray | None]:
        """The samples without their padding; and which tokens of the input whose lengths outputs
        have are real, [N, S], where something says so."""
        if len(self.plan.inputs) == 1:
            return self._input(x, self.plan.input, where, mask, lengths)
        names = [entry.name for entry in self.plan.inputs]
        if isinstance(x, dict):
            x = tuple(x[name] for name in names if name in x)
        besides = (mask, lengths)
        if not isinstance(x, tuple) or len(x) != len(names):
            raise DataError(
                f"{where} must be a pair ({', '.join(names)}): {self.network.name} is given both. "
                f"Got {type(x).__name__}."
            )
        found = [
            self._input(part, entry, f"{where}[{i}]", *(_of_input(m, i, entry) for m in besides))
            for i, (part, entry) in enumerate(zip(x, self.plan.inputs, strict=True))
        ]
        if len({len(samples) for samples, _ in found}) > 1:
            counts = " and ".join(str(len(samples)) for samples, _ in found)
            raise DataError(f"{where} must hold as many of each input. Got {counts}.")
        like = [entry.shape[:1] for entry in self.plan.inputs]
        own = self.plan.output.shape[:1]
        return Several(*(samples for samples, _ in found)), (
            found[like.index(own)][1] if own in like else None
        )

    def _input(
        self, x: Any, entry: Input, where: str, mask: Any = None, lengths: Any = None
    ) -> tuple[np.ndarray | list[np.ndarray], np.ndarray | None]:
        """The samples of one input without their padding, and which tokens are real."""
        if mask is not None or lengths is not None:
            self._let_lengths_differ()
        elif _are_shorter(x, entry):
            with contextlib.suppress(ShapeError):  # then the lengths are what is wrong
                self._let_lengths_differ()
        entry = next(each for each in self.plan.inputs if each.name == entry.name)
        samples = checked_samples(x, entry, self.dtype, where)
        if not isinstance(samples, np.ndarray):
            if mask is not None or lengths is not None:
                raise DataError(
                    f"A mask or lengths say which tokens of one array [N, S, …] count. {where} is "
                    "a list of samples, each of its own length: leave them out."
                )
            if entry.padding_id is None or not len(samples):
                return samples, None
            return Packed([_real_ids(each, entry, where) for each in samples]), None
        real = real_tokens(samples, entry, mask, lengths, where) if len(samples) else None
        return (samples, None) if real is None else (without_padding(samples, real), real)

    def _let_lengths_differ(self) -> None:
        """From now on samples may be shorter than the network's input says."""
        if all(isinstance(entry.shape[0], Ragged) for entry in self.plan.inputs):
            return
        plan = self.network.plan(ragged=True)
        self._engine.replan(plan)
        self.plan = plan

    def _samples(self, data: Any, name: str) -> tuple[Samples, Targets]:
        """x and y of at least one sample; `name` is what the caller knows them by."""
        x, y, weights = pair_of(data, name)
        dot = f"{name}." if name else ""
        mask, target = getattr(data, "mask", None), self.plan.inputs[-1]
        if target.begins_with is not None and not isinstance(x, tuple):
            y = up_to_their_ends(y, target, f"{dot}y")
            source, _ = self._input(x, self.plan.input, f"{dot}x", mask)
            targets = checked_targets(y, self.plan, len(source), f"{dot}y", weights)
            return Several(source, shifted(y, target)), targets
        samples, real = self._inputs(x, f"{dot}x", mask)
        lengths, own = None, self.plan.output.shape[:1]
        like = [entry.shape[:1] for entry in self.plan.inputs]
        if self._is_ragged and own in like:
            lengths = [len(sample) for sample in inputs_of(samples)[like.index(own)]]
            y, weights = _of_real(y, real), _of_real(weights, real)
        targets = checked_targets(y, self.plan, len(samples), f"{dot}y", weights, lengths)
        if not len(samples):
            raise DataError(f"{dot}x must hold at least one sample.")
        return samples, targets

    @property
    def _is_ragged(self) -> bool:
        return any(isinstance(extent, Ragged) for extent in self.plan.output.shape)

    def _pull_back(self, x: Any, dy: np.ndarray) -> tuple[Any, Gradients]:
        if len(x):
            dx, gradients = self._engine.pull_back(x, dy)
            return _joined(dx, isinstance(x, np.ndarray)), gradients
        zeros = {name: np.zeros_like(values) for name, values in self.parameters.items()}
        return np.zeros(np.shape(x), self.dtype), zeros

    def _augmentation(
        self, augmentation: Augmentation | None, x: Samples
    ) -> Callable[[int], Samples] | None:
        """The samples as an epoch sees them."""
        if augmentation is None:
            return None
        if not isinstance(x, np.ndarray):
            raise DataError("Samples that differ in length cannot be augmented.")
        augmentation.check_samples(x.shape[1:])
        numbers, seed = np.arange(len(x)), self.seed
        return lambda epoch: augmentation.apply(x, seed, epoch, numbers)

    def _diagnose(self, x: Samples, y: Targets) -> str | None:
        """Where a batch's first non-finite number appears, told by the reference engine."""
        from undivided.engines.reference import ReferenceEngine

        reference = ReferenceEngine(self.plan, self.dtype)
        for name, values in self.parameters.items():
            reference.parameters[name][...] = values
        return reference.diagnose(x, y)


def load(
    path: str | os.PathLike[str],
    threads: int | None = None,
    engine: Literal["native", "reference"] | None = None,
) -> Model:
    """The model in a file that `model.save` or `undivided train` wrote.

    It predicts what the saved one did. A `fit` goes on with its epochs, its shuffles, its
    schedule of learning rates and dropout's coins. The optimizer's averages start anew, unless
    `model.save(path, optimizer=True)` wrote them.
    """
    from undivided.files import read_model

    file = read_model(path)
    try:
        model = Model(file.network, file.seed, threads, engine)
    except MemoryError as error:
        raise ModelFileError(f"{path}: there is not enough memory for this model.") from error
    state = model._state
    if len(file.generator) != len(state.generator.state):
        raise ModelFileError(
            f"{path}: expected the state of the generator as {len(state.generator.state)} whole "
            f"numbers, found {len(file.generator)}. Copy or save the file again."
        )
    state.generator.state = file.generator
    state.epochs, state.steps = file.epochs, file.steps
    state.optimizer_steps = file.optimizer_steps or 0
    model.class_names = file.class_names
    for name, values in file.parameters.items():
        model.parameters[name] = values
    for slot, kept in file.slots.items():
        for name, values in kept.items():
            model._engine.slots[slot][name][...] = values
    return model


def _split(samples: Labelled, share: float) -> tuple[Labelled, Labelled]:
    """Samples to train on, and the last of them to test on."""
    x, targets = samples
    kept = len(x) - round(share * len(x))
    if not 0 < kept < len(x):
        raise DataError(
            f"A validation_split of {share:g} of {len(x)} samples leaves none on one side. "
            "Give test samples, or choose another share."
        )
    first, last = np.arange(kept), np.arange(kept, len(x))
    return (taken(x, first), targets.take(first)), (taken(x, last), targets.take(last))


def _decided(scores: np.ndarray, kind: str) -> np.ndarray:
    return (scores > 0).astype(np.int64) if kind == "shares" else scores.argmax(axis=-1)


def _joined(results: Any, dense: bool, real: np.ndarray | None = None) -> Any:
    """One array for samples that came in one, also where an engine gives one array for each."""
    if not dense or not isinstance(results, list):
        return results
    return np.stack(results) if real is None else filled_up(results, real)


def _each(results: Any, function: Callable[[np.ndarray], np.ndarray]) -> Any:
    """A function of the last axis, of one array or of each of a list."""
    return [function(each) for each in results] if isinstance(results, list) else function(results)


def _are_shorter(x: Any, entry: Input) -> bool:
    """Whether samples come in a list, and some are shorter than the network declares."""
    most, rank = entry.shape[0], len(entry.shape)
    if not isinstance(x, (list, tuple)) and getattr(x, "dtype", None) != np.object_:
        return False
    try:
        shapes = {np.shape(sample) for sample in x}
    except ValueError:
        return False  # no arrays at all, as will be said
    if isinstance(most, Ragged) or any(len(shape) != rank for shape in shapes):
        return False
    lengths = {shape[0] for shape in shapes}
    return bool(lengths) and min(lengths) < most and max(lengths) <= most


def _of_input(given: Any, number: int, entry: Input) -> Any:
    """A mask, or lengths, of one of several inputs: by name, in order, or of the first alone."""
    if isinstance(given, dict):
        return given.get(entry.name)
    if isinstance(given, tuple):
        return given[number] if number < len(given) else None
    return given if number == 0 else None


def _of_real(y: Any, real: np.ndarray | None) -> Any:
    """What belongs to the real tokens of samples, where y has something for each token."""
    array = None if y is None or real is None else np.asarray(y)
    if array is None or real is None or array.shape[:2] != real.shape:
        return y
    return [each[tokens] for each, tokens in zip(array, real, strict=True)]


def _real_ids(ids: np.ndarray, entry: Input, where: str) -> np.ndarray:
    """A sample of a list without its padding."""
    real = real_tokens(ids[None], entry, where=where)
    return ids if real is None else ids[real[0]]


def _replaced(description: Any, **given: Any) -> Any:
    """A description with the arguments that were given, checked like those of the text."""
    return dataclasses.replace(
        description, **{name: value for name, value in given.items() if value is not None}
    )
