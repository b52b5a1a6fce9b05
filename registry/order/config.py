"""``ReadConfig``: the options of a read. They are checked when it is created; ``Order`` and ``Reader`` trust them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from registry.errors import UsageError
from registry.model import whole_number


class _DefaultNumber(int):
    """A default that differs from the same number passed by a caller: ordered versions replace the default only."""


_OPTIONAL: Final = {"shuffle_seed", "repeat", "seed", "global_seed"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConfig:
    """How a plan is read. Names and defaults are those of ``tfds.ReadConfig``, if it has the option.

    Attributes:
        interleave_cycle_length: number of files that are read in turns. 1 reads one file after the other, and is the
            default if a version's records are stored in the order of generation, as in TFDS.
        interleave_block_length: number of records that are read of a file in one turn.
        shuffle_files: shuffle the files before they are interleaved, as ``tf.data`` does.
        shuffle_seed: the seed of that shuffle, any whole number. A config may have a seed without a shuffle, as in
            TFDS, so that ``shuffle_files`` can be added later; reading with such a config is refused.
        shuffle_reshuffle_each_iteration: whether each epoch shuffles the files anew; None is True, as in ``tf.data``.
        interleave_sort_fn: a function that takes the list of the plan's FileInstructions and returns them in another
            order, before they are shuffled or interleaved.
        add_tfds_id: add the feature ``tfds_id`` to each example, which names its file and record.
        repeat: number of epochs, or None for ever. Epochs follow each other and do not mix.
        shuffle: ``"global"`` for a permutation of all records, instead of files in turns.
        seed: the seed of the global shuffle, from 0 to 2**64 (excluded).
        global_seed: the argument of ``tf.random.set_seed``, if that was called before the file shuffle.
        op_seed_index: with ``global_seed`` and no ``shuffle_seed``: the number of operations that drew a seed before.

    >>> ReadConfig(shuffle_files=True, shuffle_seed=42).needs_seed
    False

    Raises:
        UsageError: an invalid value or combination.
    """

    interleave_cycle_length: int = _DefaultNumber(16)
    interleave_block_length: int = 16
    shuffle_files: bool = False
    shuffle_seed: int | None = None
    shuffle_reshuffle_each_iteration: bool | None = None
    interleave_sort_fn: Callable[[list[Any]], Sequence[Any]] | None = None
    add_tfds_id: bool = False
    repeat: int | None = 1
    shuffle: Literal["global"] | None = None
    seed: int | None = None
    global_seed: int | None = None
    op_seed_index: int = 0

    def __post_init__(self) -> None:
        if self.interleave_cycle_length is None:
            raise UsageError(
                "interleave_cycle_length is None: tf.data would then choose a number that depends on the machine",
                hint="Give a number, e.g. 16 (the default), or 1 for one file after the other.",
            )
        self._check_whole("interleave_cycle_length", least=1)
        self._check_whole("interleave_block_length", least=1)
        self._check_whole("shuffle_seed")
        self._check_whole("repeat", least=1, hint="None repeats for ever.")
        self._check_whole("seed", least=0, below=2**64)
        self._check_whole("global_seed")
        self._check_whole("op_seed_index", least=0)
        for name in ("shuffle_files", "add_tfds_id"):
            _check_kind(name, getattr(self, name), bool)
        _check_kind("shuffle_reshuffle_each_iteration", self.shuffle_reshuffle_each_iteration, (bool, type(None)))
        if self.interleave_sort_fn is not None and not callable(self.interleave_sort_fn):
            raise UsageError(f"interleave_sort_fn must be a function, not {self.interleave_sort_fn!r:.60}")
        self._check_shuffles()

    def _check_shuffles(self) -> None:
        """Refuse an unknown shuffle, and options that would have no effect."""
        if self.shuffle not in (None, "global"):
            raise UsageError(
                f"there is no shuffle {self.shuffle!r:.60}",
                hint='Write shuffle="global" for all records, or shuffle_files=True for the files.',
            )
        if self.shuffle == "global":
            for name in ("shuffle_files", "shuffle_seed", "global_seed", "interleave_sort_fn"):
                if getattr(self, name) is not None and getattr(self, name) is not False:
                    raise UsageError(
                        f'{name} orders files, but shuffle="global" permutes all records',
                        hint='Choose one: shuffle="global" with seed, or shuffle_files=True with shuffle_seed.',
                    )
            if self.shuffle_reshuffle_each_iteration is False:
                raise UsageError(
                    'shuffle="global" gives each epoch an order of its own',
                    hint="Leave it out. To read the same order again, create a new reader for each epoch.",
                )
        elif self.seed is not None:
            raise UsageError(
                'seed requires shuffle="global"',
                hint='Add shuffle="global", or write shuffle_seed for the shuffle of files.',
            )
        if self.op_seed_index and self.global_seed is None:
            raise UsageError(
                "op_seed_index requires global_seed, because it counts the seeds drawn from it",
                hint="Add global_seed, or leave it out.",
            )

    def _check_whole(
        self, name: str, *, least: int | None = None, below: int | None = None, hint: str | None = None
    ) -> None:
        """Require the option ``name`` to be a whole number, or None if that is its default; store it as an int."""
        given = getattr(self, name)
        if isinstance(given, _DefaultNumber) or (given is None and name in _OPTIONAL):
            return
        number = whole_number(given, name, least=least, below=below, hint=hint)
        object.__setattr__(self, name, number)  # NumPy's integers are not of type int

    @property
    def needs_seed(self) -> bool:
        """Whether there is a shuffle without a seed: then each read has an order of its own."""
        if self.shuffle == "global":
            return self.seed is None
        return self.shuffle_files and self.shuffle_seed is None and self.global_seed is None

    def check_seeds(self) -> None:
        """Raise UsageError for a seed without a shuffle, which would have no effect."""
        if self.shuffle is not None or self.shuffle_files:
            return
        for name in ("shuffle_seed", "global_seed"):
            if getattr(self, name) is not None:
                raise UsageError(
                    f"{name} has no effect without shuffle_files",
                    hint=f"Add shuffle_files=True, or leave {name} out.",
                )

    def with_seed(self, seed: int) -> ReadConfig:
        """This config with ``seed`` for its shuffle, or this config if no seed is missing.

        Raises:
            UsageError: ``seed`` is not a whole number, or is out of range.
        """
        if not self.needs_seed:
            return self
        return replace(self, seed=seed) if self.shuffle == "global" else replace(self, shuffle_seed=seed)


def read_config_or_default(config: ReadConfig | None) -> ReadConfig:
    """``config``, or the default if it is None; UsageError for any other value."""
    if config is None:
        config = ReadConfig()
    if not isinstance(config, ReadConfig):
        raise UsageError(
            f"read_config must be a registry.ReadConfig, not {config!r:.60}",
            hint="Write registry.ReadConfig(shuffle_files=True, shuffle_seed=42), or leave it out for TFDS's default.",
        )
    return config


def check_read_config(config: ReadConfig | None, *, is_ordered: bool = False) -> ReadConfig:
    """The config to read with: ``config``, or the default if it is None.

    ``is_ordered`` means that the records are stored in the order of generation. They are then read in that order, one
    file after the other, unless the config sets ``interleave_cycle_length``.

    Raises:
        UsageError: it is not a ReadConfig, or has a seed without a shuffle.
    """
    config = read_config_or_default(config)
    config.check_seeds()
    if is_ordered and isinstance(config.interleave_cycle_length, _DefaultNumber):
        return replace(config, interleave_cycle_length=1)
    return config


def _check_kind(name: str, value: object, kind: type | tuple[type, ...]) -> None:
    if not isinstance(value, kind):
        raise UsageError(f"{name} must be True or False, not {value!r:.60}")
