"""Our parts beside the published functions' stored outputs.

    python tests/rl/parity.py FILE_OR_FOLDER... [--json]

A file is dispatched on its `method` and its keys, never on names of cases. Where our decisions
differ from those of the published code (README.md of the plug-in), published.py makes theirs of our
arithmetic. A value agrees within 1e-4 of the published one + 2e-5; max_rel is over published values
above 0.2, where the relative part is what counts. Exit code 0; 1 on a mismatch; 2 on an unknown
method or zero cases.

Excluded, counted and printed, by these rules:

  error      the published code raised: there is no output
  rounding   the two differ by no more than float32 rounding of the group's mean makes of it there,
             4 u max|r| (1 + |A|) / (std + eps), u = 2^-24: equal rewards above all, where the
             published value depends on the summation order
  sampled    ids, mixtures and logits of a sampled rollout (LEPO): they pin a generator and a model
             that is not stored
  unstored   a LEPO check that needs the model's embeddings, which no file holds
  absent     a value that needs what the file does not hold (A2R: tasks without a history), or a
             reward by a library of its own (BLEU)
  unknown    an output by a name that is none of the method's

Not values of a method, and not compared: n_returned, returns_is_same_tensor, dtype, name, note.
Dr.GRPO's loss cases do not say in a key which of the two official aggregates made them: each is
held to the nearer.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

# so that the file runs as it stands, from any folder
sys.path.insert(0, str(Path(__file__).parents[3]))

try:
    import torch
    from torch import Tensor
except ModuleNotFoundError:
    if __name__ != "__main__":
        raise
    from tests.plugins.rl import tell_lacking

    sys.exit(tell_lacking(sys.argv[1:]))

from recreate.plugins.rl.parts import a2r, advantages, gigpo, lepo, rewards, steer
from recreate.plugins.rl.parts import losses as rules
from recreate.plugins.rl.parts.groups import Groups, grouped
from recreate.plugins.rl.parts.losses import cispo, clip
from recreate.plugins.rl.recipe import PolicyLoss
from tests.plugins.rl import published

RTOL, ATOL = 1e-4, 2e-5
UNIT = 2.0**-24
Case = Mapping[str, Any]


class Result:
    """What one file came to."""

    def __init__(self, file: str, method: str) -> None:
        self.file, self.method, self.cases = file, method, 0
        self.max_abs = self.max_rel = 0.0
        self.mismatched: list[str] = []
        self.excluded: Counter[str] = Counter()
        self.where = ""

    def same(self, what: str, ours: Any, theirs: Any, slack: Tensor | None = None) -> None:
        """Compare two values of any shape; NaN and infinities must stand at the same places."""
        if theirs is None:
            return
        a, b = number(ours), number(theirs)
        if not (a.numel() or b.numel()):
            return  # of nothing, JSON keeps no shape: no latent step is [] for any number of rows
        if a.shape != b.shape:
            self.mismatched.append(
                f"{self.where}: {what} has shape {tuple(a.shape)}, published {tuple(b.shape)}"
            )
            return
        away = torch.where((a == b) | (a.isnan() & b.isnan()), 0.0, (a - b).abs())
        away = torch.where(away.isnan(), math.inf, away)
        wrong = away > ATOL + RTOL * torch.where(b.isfinite(), b.abs(), 0.0)
        if slack is not None:
            rounding = wrong & (away <= slack.double().expand_as(away))
            if bool(rounding.any()):
                self.excluded["rounding"] += 1
                away, wrong = torch.where(rounding, 0.0, away), wrong & ~rounding
        if bool(wrong.any()):
            at = tuple(wrong.nonzero()[0].tolist())
            self.mismatched.append(
                f"{self.where}: {what}{list(at)} is {float(a[at]):.7g}, published"
                f" {float(b[at]):.7g}"
            )
        if away.numel():
            finite = torch.where(b.isfinite() & (b.abs() > ATOL / RTOL), away / b.abs(), 0.0)
            self.max_abs = max(self.max_abs, float(away.max()))
            self.max_rel = max(self.max_rel, float(finite.max()))

    def equal(self, what: str, ours: Any, theirs: Any) -> None:
        if theirs is not None and ours != theirs:
            self.mismatched.append(f"{self.where}: {what} is {ours!r}, published {theirs!r}")
            self.max_abs = math.inf

    def record(self) -> dict[str, Any]:
        return {
            "schema": 1,
            "file": self.file,
            "method": self.method,
            "cases": self.cases,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "mismatches": len(self.mismatched),
            "excluded": sum(self.excluded.values()),
            "excluded_because": {rule: n for rule, n in sorted(self.excluded.items()) if n},
            "mismatched": self.mismatched,
        }

    def __str__(self) -> str:
        rules = ", ".join(f"{n} {rule}" for rule, n in sorted(self.excluded.items()) if n)
        return (
            f"{'MISS' if self.mismatched else 'ok  '} {self.file}: {self.method}, {self.cases}"
            f" cases, max abs {self.max_abs:.2g}, max rel {self.max_rel:.2g},"
            f" {len(self.mismatched)} mismatches, excluded"
            f" {sum(self.excluded.values())}{f' ({rules})' if rules else ''}"
        )


def number(value: Any) -> Tensor:
    """Any nesting of numbers, booleans and "NaN", "Infinity", "-Infinity" as float64."""
    if isinstance(value, Tensor):
        return value.detach().double()
    return torch.tensor(_floats(value), dtype=torch.float64)


def f32(value: Any) -> Tensor:
    return number(value).float()


def _floats(value: Any) -> Any:
    return [_floats(v) for v in value] if isinstance(value, list) else float(value)


def _raised(result: Result, case: Case, *keys: str) -> bool:
    """Whether the published code raised; counted."""
    if any(case.get(key) for key in keys or ("error",)) or case.get("outputs", {}) is None:
        result.excluded["error"] += 1
        return True
    return False


def _masked_mean(values: Tensor, mask: Tensor, *, reads: bool = False) -> Tensor:
    kept = values * mask if reads else torch.where(mask.bool(), values, 0.0) * mask
    return kept.sum() / (mask.sum() + 1e-8)


def _rounding(r: Tensor, groups: Groups, out: Tensor, eps: float | None) -> Tensor:
    """What float32 rounding of the mean may make of an advantage: (B,). eps None: not divided by a
    std."""
    wide = torch.where(r.isfinite(), r, 0.0).double()
    top = torch.zeros(groups.size, dtype=torch.float64).scatter_reduce_(
        0, groups.index, wide.abs(), "amax"
    )
    slack = 4 * UNIT * top[groups.index] * (1 + out.double().abs())
    if eps is None:
        return slack
    centred = advantages.normalised(wide, groups, scale="none")
    std = (groups.total(centred.square()) / (groups.count - 1).clamp(min=1)).sqrt()[groups.index]
    return slack / (std + eps)


# ---- advantages


def verl_advantages(result: Result, case: Case) -> None:
    given = case["inputs"]
    rewards, mask, groups = (
        f32(given["token_level_rewards"]),
        f32(given["response_mask"]),
        grouped(given["index"]),
    )
    eps = float(given.get("epsilon", 1e-6))
    scale: advantages.Scale = "group" if given.get("norm_adv_by_std_in_grpo", True) else "none"
    r = rewards.sum(-1)
    for key, theirs in (case.get("outputs") or {}).items():
        if theirs is None:
            continue
        if key in ("verl_grpo", "verl_grpo_vectorized"):
            out = published.grpo(r, groups, scale=scale, eps=eps)
            slack = _rounding(r, groups, out, eps if scale == "group" else None)
        elif key in ("verl_rloo", "verl_rloo_vectorized"):
            out = published.rloo(r, groups)
            if key.endswith("vectorized"):
                out = torch.where(groups.count[groups.index] == 1, out * 0, out)
            slack = 2 * _rounding(r, groups, out, None)
        else:
            result.excluded["unknown"] += 1
            continue
        result.same(key, out.unsqueeze(-1) * mask, theirs, slack.unsqueeze(-1))
    result.excluded["error"] += sum(bool(e) for e in (case.get("errors") or {}).values())


def oat_advantages(result: Result, case: Case) -> None:
    r = f32(case["inputs"]["rewards_per_token"]).sum(-1)
    n = int(case["inputs"]["num_samples"])
    groups = Groups(torch.arange(len(r)) // n, -(-len(r) // n))
    for key, theirs in (case.get("outputs") or {}).items():
        if theirs is None:
            continue
        if key == "drgrpo":
            # oat has no case for a group of one: its mean is itself
            out = published.grpo(r, groups, scale="none") if n > 1 else r - r
            slack = _rounding(r, groups, out, None)
        elif key == "grpo":
            out = published.grpo(r, groups, eps=1e-8) if n > 1 else torch.full_like(r, math.nan)
            slack = _rounding(r, groups, out, 1e-8)
        else:
            result.excluded["unknown"] += 1
            continue
        result.same(key, out, theirs, slack)
    result.excluded["error"] += sum(bool(e) for e in (case.get("errors") or {}).values())


def trl_advantages(result: Result, case: Case) -> None:
    given = case["inputs"]
    per_function, n = f32(given["rewards_per_func"]), int(given["num_generations"])
    weights = f32(given.get("reward_weights") or [1.0] * per_function.shape[1])
    r = (per_function * weights).nansum(1)
    r[per_function.isnan().all(1)] = math.nan
    groups = Groups(torch.arange(len(r)) // n, len(r) // n)
    for key, theirs in (case.get("outputs") or {}).items():
        if theirs is None:
            continue
        found = re.fullmatch(r"grpo_scale_(group|batch|none)|(rloo)(_normalized)?", key)
        if not found:
            result.excluded["unknown"] += 1
            continue
        eps: float | None = None
        if found[2]:
            out = published.rloo(r, groups, normalise=bool(found[3]), unscored="row")
            slack = (
                2
                * _rounding(r, groups, out, None)
                / (advantage_spread(r, groups) if found[3] else 1.0)
            )
        else:
            scale: Any = found[1]
            out = published.grpo(r, groups, scale=scale, eps=1e-4, unscored="row")
            eps = 1e-4 if scale == "group" else None
            slack = _rounding(r, groups, out, eps) / (
                advantage_spread(r, groups) if scale == "batch" else 1.0
            )
        result.same(key, out, theirs, slack)


def advantage_spread(r: Tensor, groups: Groups) -> float:
    """What a batch-wide normalisation divides by."""
    finite = r[r.isfinite()]
    return float(finite.double().std() if len(finite) > 1 else 0.0) + 1e-4


def gapo_advantages(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    given = case["inputs"]
    r, mask, groups = (
        f32(given["token_level_rewards"]).sum(-1),
        f32(given["response_mask"]),
        grouped(given["index"]),
    )
    config, eps = given.get("config") or {}, float(given.get("epsilon", 1e-6))
    scaled = given.get("norm_adv_by_std_in_grpo", True)
    method = config.get("find_method")
    if method in ("mean", "median"):
        out = published.gapo_advantages(
            r,
            groups,
            fraction=config.get("find_target_fraction", 0.5),
            center=method,
            scale="deviation" if scaled else "none",
            eps=eps,
        )
    else:
        out = published.grpo(r, groups, scale="group" if scaled else "none", eps=eps)
    slack = _rounding(r, groups, out, eps if scaled else None).unsqueeze(-1)
    result.same("advantages", out.unsqueeze(-1) * mask, case["outputs"]["advantages"], slack)


def gapo_interval(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    values = [float(v) for v in case["inputs"]["arr"]]
    k = math.ceil(len(values) * float(case["inputs"]["tau_percent"]) / 100)
    result.equal("k", k, case.get("k"))
    found = published.interval(values, k)
    result.same("mean", found.mean, case["outputs"].get("mean"))
    result.same("median", found.median, case["outputs"].get("median"))


def gapo_reward(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    equal, near = published.edit_similarity(case["solution"], case["ground_truth"])
    result.same("exact_match", float(equal), case.get("exact_match"))
    result.same("edit_distance", near, case.get("edit_distance"))
    scores = {
        "compute_score_edem": (near + equal) / 2,
        "compute_score_ed": near,
        "compute_score_em": float(equal),
    }
    if case.get("fn") in scores:
        result.same("score", scores[case["fn"]], case.get("score"))
    else:
        result.excluded["absent"] += 1


def gigpo_case(result: Result, case: Case) -> None:
    given, outputs = case["inputs"], case.get("outputs") or {}
    result.excluded["error"] += sum(bool(e) for e in (case.get("errors") or {}).values())
    groups, trajectories = grouped(given["index"]), grouped(given["traj_uid"])
    r, mask = f32(given["token_level_rewards"]).sum(-1), f32(given["response_mask"])
    eps, weight = float(given.get("epsilon", 1e-6)), float(given.get("step_advantage_w", 1.0))
    scale: Any = "group" if given.get("mode", "mean_norm") == "mean_std_norm" else "none"
    returns = gigpo.discounted_returns(
        f32(given["step_rewards_raw"]), trajectories, float(given["gamma"])
    )
    result.same("step_discounted_returns", returns, outputs.get("step_discounted_returns"))
    used = eps if scale == "group" else None
    for key, across in (
        ("episode_adv_cross_steps_True", True),
        ("episode_adv_cross_steps_False_paper_eq3", False),
    ):
        if outputs.get(key) is not None:
            out = published.gigpo_episodes(
                r, groups, trajectories, scale=scale, across_steps=across, eps=eps
            )
            slack = _rounding(r, groups, out, used).unsqueeze(-1)
            result.same(key, out.unsqueeze(-1) * mask, outputs[key], slack)
    if outputs.get("step_group") is None:
        return
    similarity = (
        float(given.get("similarity_thresh", 0.95)) if given.get("enable_similarity") else 0.0
    )
    steps = gigpo.step_groups(given["anchor_obs"], groups, similarity=similarity)
    labels: dict[int, int] = {}
    result.equal(
        "step_group",
        [labels.setdefault(s, len(labels)) for s in steps.index.tolist()],
        outputs["step_group"],
    )
    if outputs.get("advantages") is None:
        return
    out = published.gigpo_episodes(r, groups, trajectories, scale=scale, across_steps=True, eps=eps)
    out = out + weight * advantages.normalised(returns, steps, scale=scale, eps=eps).to(out.dtype)
    slack = _rounding(r, groups, out, used) + abs(weight) * _rounding(returns, steps, out, used)
    result.same("advantages", out.unsqueeze(-1) * mask, outputs["advantages"], slack.unsqueeze(-1))


# ---- losses


MODES: dict[str, rules.Mode] = {
    "token-mean": "token-mean",
    "token-sum": "token-sum",
    "seq-mean-token-sum": "sequence-sum",
    "seq-mean-token-mean": "sequence-mean",
    "seq-mean-token-sum-norm": "constant",
}


def verl_loss(kind: str) -> Callable[[Result, Case], None]:
    """A handler for the registered policy loss that a file's method is."""

    def handle(result: Result, case: Case) -> None:
        if _raised(result, case):
            return
        given, config = case["inputs"], case["inputs"].get("config") or {}
        old, mask, a = (
            f32(given["old_log_prob"]),
            f32(given["response_mask"]),
            f32(given["advantages"]),
        )
        lp = f32(given["log_prob"]).requires_grad_()
        both = config.get("clip_ratio", 0.2)
        low, high = (
            both if config.get(k) is None else config[k]
            for k in ("clip_ratio_low", "clip_ratio_high")
        )
        change, used = lp - old, given.get("loss_mode", kind)
        if used == "gspo":
            out = clip(published.sequence_ratio(lp, old, mask), a, low=low, high=high)
        else:
            change = change.clamp(-20, 20)
            rho = published.token_ratio(lp, old)
            if used == "cispo":
                out = cispo(rho, a, lp, lowest=1 - low, highest=1 + high)
            else:
                out = clip(rho, a, low=low, high=high, dual=config.get("clip_ratio_c", 3.0))
        losses = out.loss
        if given.get("rollout_is_weights") is not None:
            losses = losses * f32(given["rollout_is_weights"])
        whole = {**config, **(config.get("global_batch_info") or {}), **given}
        ranks = float(whole.get("dp_size") or 1)
        tokens, rows = whole.get("batch_num_tokens"), whole.get("global_batch_size")
        default = "seq-mean-token-mean" if used == "gspo" else "token-mean"
        loss = published.aggregate(
            losses,
            mask,
            MODES[given.get("loss_agg_mode", default)],
            tokens=None if tokens is None else tokens / ranks,
            rows=None if rows is None else rows / ranks,
            length=whole.get("loss_scale_factor"),
            code="verl",
        )
        loss = loss * ranks if given.get("loss_agg_mode") == "token-sum" else loss
        (grad,) = torch.autograd.grad(loss, lp)
        outputs = case["outputs"]
        result.same("loss", loss, outputs.get("loss"))
        result.same("grad_log_prob", grad, outputs.get("grad_log_prob"))
        metrics = outputs.get("metrics") or {}
        result.same(
            "pg_clipfrac", _masked_mean(out.clipped.float(), mask), metrics.get("actor/pg_clipfrac")
        )
        result.same("ppo_kl", _masked_mean(-change, mask), metrics.get("actor/ppo_kl"))
        result.same(
            "pg_clipfrac_lower",
            _masked_mean(out.dual.float(), mask),
            metrics.get("actor/pg_clipfrac_lower"),
        )

    return handle


def verl_kl(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    lp, ref = f32(case["inputs"]["logprob"]).requires_grad_(), f32(case["inputs"]["ref_logprob"])
    spelled = str(case["inputs"]["kind"])
    names: dict[str, rules.Kind] = {
        "kl": "k1",
        "mse": "k2",
        "low_var_kl": "k3",
        "k1": "k1",
        "k2": "k2",
        "k3": "k3",
    }
    kind: rules.Kind = names.get(spelled.rstrip("+"), "abs")
    value = rules.kl(lp, ref, kind, straight=spelled.endswith("+"))
    (grad,) = torch.autograd.grad(value.sum(), lp)
    result.same("kl", value, case["outputs"].get("kl"))
    result.same("grad_logprob", grad, case["outputs"].get("grad_logprob"))


def trl_per_token(
    given: Mapping[str, Any], lp: Tensor, old: Tensor, mask: Tensor, a: Tensor
) -> tuple[Tensor, Tensor]:
    """(losses, ratio), (B,T), of TRL's policy losses."""
    kind, change = given["loss_type"], lp - old
    if given["importance_sampling_level"] == "sequence":
        rho = published.sequence_ratio(lp, old, mask, limit=None, straight=False)
    else:
        rho = published.token_ratio(lp, old, limit=None)
    low, high = given["epsilon_low"], given["epsilon_high"]
    high = low if high is None else high
    made: PolicyLoss
    if kind == "cispo":
        made = cispo(rho, a, lp, lowest=0.0, highest=high)
    elif kind == "sapo":
        made = published.sapo(
            rho,
            a,
            positive=given.get("sapo_temperature_pos", 1.0),
            negative=given.get("sapo_temperature_neg", 1.05),
        )
    elif kind == "vespo":
        k = given.get("vespo_k_pos", 2.0), given.get("vespo_k_neg", 3.0)
        rate = given.get("vespo_lambda_pos", 3.0), given.get("vespo_lambda_neg", 2.0)
        made = published.vespo(change, a, lp, mask, k=k, rate=rate)
    else:
        made = clip(rho, a, low=low, high=high, cap=given.get("delta"))
    return made.loss, rho


def trl_total(given: Mapping[str, Any], losses: Tensor, mask: Tensor) -> Tensor:
    kind, steps = given["loss_type"], float(given.get("gradient_accumulation_steps") or 1)
    rows = len(losses)
    if kind in ("cispo", "dapo", "vespo"):
        items = (
            max(float(given["num_items_in_batch"]), 1.0)
            * steps
            / float(given.get("steps_per_generation") or steps)
        )
        return published.aggregate(losses, mask, "token-mean", tokens=items, code="trl")
    if kind == "luspo":
        return published.aggregate(losses, mask, "sequence-sum", rows=rows, code="trl") / steps
    modes: dict[str, rules.Mode] = {"bnpo": "token-mean", "dr_grpo": "constant"}
    length = given.get("max_completion_length")
    over = modes.get(kind, "sequence-mean")
    return published.aggregate(losses, mask, over, rows=rows, length=length, code="trl") / steps


def trl_loss(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    given = case["inputs"]
    lp = f32(given["per_token_logps"]).requires_grad_()
    old = (
        lp.detach()
        if given.get("old_per_token_logps") is None
        else f32(given["old_per_token_logps"])
    )
    mask, a = f32(given["completion_mask"]), f32(given["advantages"])
    losses, rho = trl_per_token(given, lp, old, mask, a.unsqueeze(1) if a.dim() == 1 else a)
    beta = float(given.get("beta") or 0)
    if beta:
        far = rules.kl(lp, f32(given["ref_per_token_logps"]), "k3", clamp=False)
        losses = losses + beta * (far * rho if given.get("use_bias_correction_kl") else far)
    loss = trl_total(given, losses, mask)
    (grad,) = torch.autograd.grad(loss, lp)
    result.same("loss", loss, case["outputs"].get("loss"))
    result.same("grad", grad, case["outputs"].get("grad"))


def oat_loss(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    given, outputs = case["inputs"], case["outputs"]
    mask, a = f32(given["response_mask"]), f32(given["advantages"])
    tried = []
    for over, length in (("constant", int(given["generate_max_length"])), ("sequence-mean", None)):
        lp = f32(given["new_logps"]).requires_grad_()
        rho = published.token_ratio(lp, f32(given["old_logps"]), limit=None)
        eps = float(given["cliprange"])
        out = clip(rho, a.unsqueeze(-1) if a.dim() == 1 else a, low=eps, high=eps)
        if over == "constant":
            loss = published.aggregate(
                out.loss, mask, "constant", rows=len(mask), length=length, code="trl"
            )
        else:
            loss = published.aggregate(out.loss, mask, "sequence-mean", code="verl-0.4")
        (grad,) = torch.autograd.grad(loss, lp)
        apart = (grad.double() - number(outputs["grad"])).abs().nan_to_num(nan=0.0).max()
        apart = apart + (loss.detach().double() - number(outputs["loss"])).abs().nan_to_num(nan=0.0)
        tried.append((float(apart), loss, grad))
    _, loss, grad = min(tried, key=lambda t: t[0])
    result.same("loss", loss, outputs.get("loss"))
    result.same("grad", grad, outputs.get("grad"))


def steer_case(result: Result, case: Case) -> None:
    given, outputs = case["inputs"], case.get("outputs") or {}
    a, h, mask = f32(given["advantages"]), f32(given["entropys"]), f32(given["response_mask"])
    old, lp = f32(given["old_log_prob"]), f32(given["log_prob"]).requires_grad_()
    result.excluded["error"] += bool(case.get("error_weights")) + bool(case.get("error_loss"))
    weight = steer.steer(
        steer.entropy_change(a, h, lp.detach(), old),
        mask,
        mapping="linear" if given["linear"] else "exponential",
        least=given["token_weight_min"],
        most=given["token_weight_max"],
        signed=case.get("mode", given.get("mode")) == "asymmetric",
    )
    result.same("token_weights", weight, outputs.get("token_weights"))
    if outputs.get("pg_loss") is None:
        return
    both = given.get("cliprange", 0.2)
    low, high = (
        both if given.get(k) is None else given[k] for k in ("cliprange_low", "cliprange_high")
    )
    rho = published.token_ratio(lp, old)
    out = clip(rho, a, low=low, high=high, dual=given.get("clip_ratio_c", 3.0))
    over = MODES[given.get("loss_agg_mode", "token-mean")]
    loss = published.aggregate(out.loss * weight, mask, over, code="verl-0.4")
    (grad,) = torch.autograd.grad(loss, lp, retain_graph=True)
    by_high, by_low = (rho > 1 + high) & (a > 0), (rho < 1 - low) & (a < 0)
    valid = weight[mask > 0]
    found = {
        "pg_loss": loss,
        "grad_log_prob": grad,
        "vanilla_pg_loss": published.aggregate(out.loss, mask, over, code="verl-0.4"),
        "pg_clipfrac": _masked_mean(out.clipped.float(), mask),
        "ppo_kl": _masked_mean(-(lp - old).clamp(-20, 20), mask, reads=True),
        "pg_clipfrac_lower": _masked_mean(out.dual.float(), mask),
        "pg_clipfrac_high": _masked_mean(by_high.float(), mask),
        "pg_clipfrac_low": _masked_mean(by_low.float(), mask),
        "clipped_by_high": by_high,
        "clipped_by_low": by_low,
        "token_weights": weight,
        "token_weights_mean": valid.mean() if len(valid) else None,
        "token_weights_min": valid.min() if len(valid) else None,
        "token_weights_max": valid.max() if len(valid) else None,
    }
    for key, theirs in outputs.items():
        if key not in found:
            result.excluded["unknown"] += 1
        elif key != "token_weights":
            result.same(key, found[key], theirs)


# ---- DAPO


def dapo_overlong(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    given = case["inputs"]
    reward = rewards.overlong(
        number([given["score"]]),
        number([given["valid_response_length"]]),
        max_length=given["max_resp_len"],
        buffer=given["overlong_buffer_len"],
        factor=given["penalty_factor"],
    )
    result.same("reward", reward[0], case["outputs"].get("reward"))


def dapo_filter(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    uids = case["inputs"]["uid"]
    keep = published.dynamic_sampling(number(case["inputs"]["score"]), grouped(uids))
    kept = list(dict.fromkeys(uid for uid, k in zip(uids, keep.tolist(), strict=True) if k))
    result.equal("kept_prompt_uids", kept, case["outputs"].get("kept_prompt_uids"))


# ---- LEPO


def lepo_loss(result: Result, case: Case) -> None:
    if _raised(result, case):
        return
    given, outputs = case["inputs"], case["outputs"]
    logits = f32(given["logits"]).requires_grad_()
    p = int(given["prompt_len"])
    ids, mask, a = (
        number(given["completion_ids"]).long(),
        f32(given["completion_mask"]),
        f32(given["advantages"]),
    )
    mix_ids, mix = number(given["topk_ids"]).long(), f32(given["topk_probs"])
    n = ids.shape[1]
    mixture = published.mixture_log_prob(logits[:, :-1].log_softmax(-1), mix_ids[:, 1:], mix[:, 1:])
    counted = torch.cat([torch.zeros(len(ids), p - 1), mask], 1)
    result.same(
        "ce_per_token_loss_shifted_full",
        -mixture * counted,
        outputs.get("ce_per_token_loss_shifted_full"),
    )
    scaled = (logits[:, :-1][:, -n:] / given.get("temperature", 1.0)).log_softmax(-1)
    lp = scaled.gather(-1, ids.unsqueeze(-1)).squeeze(-1)
    old = (
        lp.detach()
        if given.get("old_per_token_logps") is None
        else f32(given["old_per_token_logps"])
    )
    discrete, _ = trl_per_token(given, lp, old, mask, a.unsqueeze(1))
    first = torch.arange(n) < int(given["latent_length"])
    soft = lepo.latent_loss(mixture[:, -n:] * mask, a.unsqueeze(1))
    losses = torch.where(first, soft, discrete)
    beta = float(given.get("beta") or 0)
    if beta:
        losses = losses + beta * rules.kl(lp, f32(given["ref_per_token_logps"]), "k3", clamp=False)
    loss = trl_total({**given, "gradient_accumulation_steps": 1}, losses, mask)
    (grad,) = torch.autograd.grad(loss, logits)
    result.same("loss", loss, outputs.get("loss"))
    result.same("grad_logits", grad, outputs.get("grad_logits"))


def lepo_rollout(result: Result, case: Case) -> None:
    """Only the checks: what holds of the stored rollout, and of one step of ours from the same
    logits."""
    if _raised(result, case):
        return
    given, outputs, checks = case["inputs"], case["outputs"], case.get("checks") or {}
    knobs = given["generation"]
    ids, mix = number(outputs["ids"]).long(), f32(outputs["topk_probs"])
    mix_ids, clean = number(outputs["topk_ids"]).long(), f32(outputs["clean_logits_at_completion"])
    p, n = len(given["prompt_ids"][0]), ids.shape[1] - len(given["prompt_ids"][0])
    steps = min(int(knobs["latent_length"]), n)
    result.excluded["sampled"] += 4
    warped = lepo.warp(
        clean,
        temperature=knobs.get("temperature", 1.0),
        top_k=knobs["top_k"],
        top_p=knobs.get("top_p", 1.0),
    )
    top = clean.topk(min(knobs["top_k"], clean.shape[-1]), -1).values[..., -1:]
    z, z_ids = mix[:, p : p + steps], mix_ids[:, p : p + steps]
    inside = (clean[:, :steps] >= top[:, :steps]).gather(-1, z_ids) | (z == 0)
    found: dict[str, Any] = {
        "n_new": n,
        "latent_topk_prob_mass": z.sum(-1),
        "prompt rows one-hot": bool((mix[:, :p, 0] == 1).all() and (mix[:, :p, 1:] == 0).all()),
        "discrete topk_probs[...,0]==1": bool((mix[:, p + steps :, 0] == 1).all()),
        "latent id == argmax of clean logits (fraction)": (
            ids[:, p : p + steps] == clean[:, :steps].argmax(-1)
        ),
        "latent top-1 of z == stored id (fraction)": z_ids[..., 0] == ids[:, p : p + steps],
        "support(z) within top_k of clean logits (fraction)": inside.all(-1),
    }
    for key, theirs in checks.items():
        if key not in found:
            result.excluded["unstored"] += 1
        elif theirs is not None:
            ours = found[key]
            mean = key.endswith("(fraction)") and isinstance(ours, Tensor)
            ours = (ours.float().mean() if ours.numel() else torch.ones(())) if mean else ours
            result.same(key, ours, theirs)
    if (
        knobs["noise_type"] == "gumbel"
        and steps
        and "support(z) within top_k of clean logits (fraction)" in checks
    ):
        generator = torch.Generator().manual_seed(int(given.get("seed", 0)))
        made = lepo.latent_step(
            warped[:, 0],
            torch.eye(clean.shape[-1]),
            strength=knobs["noise_strength"],
            kept=knobs["top_k"],
            generator=generator,
        )
        result.same("ours: mass of z", made.mix.sum(-1), [1.0] * len(ids))
        result.equal(
            "ours: id is the argmax of clean logits",
            made.token_ids.tolist(),
            clean[:, 0].argmax(-1).tolist(),
        )
        allowed = warped[:, 0].isfinite().gather(-1, made.mix_ids) | (made.mix == 0)
        result.equal("ours: support of z", bool(allowed.all()), True)


def lepo_table(result: Result, case: Case) -> None:
    """A Monte Carlo table: ours from 50,000 draws, within six standard errors of both."""
    pi, draws = number(case["pi"]), 50_000
    generator = torch.Generator().manual_seed(17892)
    made = lepo.latent_step(
        pi.log().expand(draws, -1),
        torch.eye(len(pi)),
        strength=float(case["tau"]),
        kept=len(pi),
        sample_ids=False,
        generator=generator,
    )
    z = torch.zeros(draws, len(pi), dtype=torch.float64).scatter_(
        1, made.mix_ids, made.mix.double()
    )
    winner = torch.zeros_like(z).scatter_(1, made.mix_ids[:, :1], 1.0)
    entropy = torch.special.entr(z).sum(1)
    for key, sample in (
        ("mean_z", z),
        ("P_argmax", winner),
        ("mean_entropy_z", entropy.unsqueeze(1)),
    ):
        if case.get(key) is None:
            continue
        theirs = number(case[key]).reshape(-1)
        own = sample.std(0) / math.sqrt(draws)
        allowed = 6 * (own.square() * (1 + draws / 2_000_000)).sqrt() + ATOL
        within = bool(((sample.mean(0) - theirs).abs() <= allowed).all())
        result.equal(f"{key} within six standard errors", within, True)
    if (
        case.get("expected_latent_score_mean_z_minus_pi") is not None
        and case.get("mean_z") is not None
    ):
        shift = number(case["mean_z"]) - pi
        result.same("mean z - pi", shift, case["expected_latent_score_mean_z_minus_pi"])


# ---- A2R


def a2r_cartography(result: Result, case: Case) -> None:
    history = [float(v) for v in case["group_mean_reward_per_epoch"]]
    found = published.cartography(history)
    result.same("confidence", found.confidence, case.get("confidence"))
    result.same("variability", found.variability, case.get("variability"))
    for key, theirs in case.items():
        if key.startswith("correctness_thr_"):
            right = published.cartography(
                history, float(key.removeprefix("correctness_thr_"))
            ).correctness
            result.same(key, right, theirs)


def a2r_divergence(result: Result, case: Case) -> None:
    beta, now, mask = (number([case[k]]) for k in ("behaviour_logp", "current_logp", "mask"))
    for key, theirs in case.items():
        d = re.fullmatch(r"D_(k[123])", key)
        w = re.fullmatch(r"w_exp_minus_D_(k[123])_T([0-9.]+)", key)
        if d:
            kind: Any = d[1]
            result.same(key, a2r.divergence(now, beta, mask, kind)[0], theirs)
        elif w:
            kind = w[1]
            away = a2r.divergence(now, beta, mask, kind)
            result.same(key, a2r.staleness_weight(away, temperature=float(w[2]))[0], theirs)
        elif key.startswith(("D_", "w_")):
            result.excluded["unknown"] += 1


def a2r_whole(result: Result, data: Mapping[str, Any]) -> None:
    """What stands beside the case lists: an order, probabilities, and a contrast."""
    histories = {
        c["name"]: [float(v) for v in c["group_mean_reward_per_epoch"]]
        for c in data.get("cartography_cases", [])
    }
    chances = a2r.probabilities(histories)
    order = data.get("expected_priority_order_by_variability")
    if order:
        result.cases, result.where = result.cases + 1, "expected_priority_order_by_variability"
        known = [name for name in order if name in histories]
        result.excluded["absent"] += len(order) - len(known)
        sigma = [a2r.ambiguity(histories[name]) for name in known]
        result.equal("order of the tasks that have a history", sigma, sorted(sigma, reverse=True))
    for key, theirs in data.items():
        if not key.startswith("expected_sampling_probabilities_alpha_") or not isinstance(
            theirs, Mapping
        ):
            continue
        result.cases, result.where = result.cases + 1, key
        alpha = float(key.rpartition("_")[2])
        known = [name for name in theirs if name in histories]
        result.excluded["absent"] += len(theirs) - len(known)
        chances = a2r.probabilities({name: histories[name] for name in known}, alpha=alpha)
        # of the tasks whose history is here, probabilities stand in the same proportion
        whole = sum(float(theirs[name]) for name in known)
        for name in known:
            result.same(name, chances[name], float(theirs[name]) / whole if whole else 0.0)
    for name, case in (data.get("in_epoch_vs_cross_epoch_contrast") or {}).items():
        result.cases, result.where = result.cases + 1, f"in_epoch_vs_cross_epoch_contrast {name}"
        rewards = number(case["rollout_rewards"])
        result.same(
            "in_epoch_std_pop", rewards.std(1, correction=0).mean(), case.get("in_epoch_std_pop")
        )
        across = a2r.ambiguity(rewards.mean(1).tolist())
        result.same("cross_epoch_variability", across, case.get("cross_epoch_variability"))


Handler = Callable[[Result, Case], None]
_SHARED: dict[str, Handler] = {
    "advantage_cases": verl_advantages,
    "policy_loss_cases": verl_loss("vanilla"),
    "kl_cases": verl_kl,
    "trl_advantage_cases": trl_advantages,
    "trl_loss_cases": trl_loss,
    "overlong_cases": dapo_overlong,
    "filter_cases": dapo_filter,
}
HANDLERS: dict[str, dict[str, Handler]] = {
    "grpo": _SHARED,
    "rloo": _SHARED,
    "dapo": _SHARED,
    "gspo": {**_SHARED, "policy_loss_cases": verl_loss("gspo")},
    "dr.grpo": {**_SHARED, "advantage_cases": oat_advantages, "loss_cases": oat_loss},
    "gapo": {
        "advantage_cases": gapo_advantages,
        "interval_cases": gapo_interval,
        "reward_cases": gapo_reward,
    },
    "gigpo": {"cases": gigpo_case},
    "steer": {"cases": steer_case},
    "lepo": {
        "loss_cases": lepo_loss,
        "rollout_cases": lepo_rollout,
        "gumbel_softmax_table": lepo_table,
    },
    "a2r": {"cartography_cases": a2r_cartography, "divergence_cases": a2r_divergence},
}


def check(file: Path) -> Result | str:
    """The result of one file, or what is wrong with it."""
    try:
        data = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError) as e:
        return f"{file}: cannot be read: {e}"
    said = str(data.get("method", "")) if isinstance(data, dict) else ""
    word = re.match(r"[\w.]+", said)
    handlers = HANDLERS.get(word[0].lower() if word else "")
    if handlers is None:
        return f"{file}: unknown method {said!r}; known: {', '.join(HANDLERS)}"
    result = Result(str(file), said)
    for key, cases in data.items():
        if not (isinstance(cases, list) and cases and all(isinstance(c, dict) for c in cases)):
            continue
        if key not in handlers:
            return f"{file}: no rule for {key!r} of {said!r}; known: {', '.join(handlers)}"
        for n, case in enumerate(cases):
            result.cases, result.where = (
                result.cases + 1,
                f"{key}[{n}] {case.get('name', '')}".strip(),
            )
            try:
                handlers[key](result, case)
            except Exception as e:
                result.mismatched.append(f"{result.where}: ours raised {type(e).__name__}: {e}")
    if handlers is HANDLERS["a2r"]:
        a2r_whole(result, data)
    return result if result.cases else f"{file}: zero cases"


def files(paths: list[str]) -> Iterator[Path]:
    for path in map(Path, paths):
        yield from sorted(path.rglob("*.json")) if path.is_dir() else [path]


def _refuse(said: str, as_json: bool) -> None:
    fix = "give files in the format of tests/plugins/rl/golden/README.md"
    error = {"error": {"code": "not-golden", "message": said, "fix": fix}}
    print(
        json.dumps({"schema": 1, **error}) if as_json else said,
        file=sys.stdout if as_json else sys.stderr,
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python tests/plugins/rl/parity.py",
        description=(
            "Our parts beside the published functions. Example: python tests/plugins/rl/parity.py"
            " tests/rl/golden"
        ),
    )
    parser.add_argument("paths", nargs="+", metavar="FILE_OR_FOLDER")
    parser.add_argument(
        "--json", action="store_true", help="one JSON object a line on stdout, a line per file"
    )
    args = parser.parse_args(arguments)
    torch.manual_seed(0)
    results, wrong = [], []
    for file in files(args.paths):
        found = check(file)
        if isinstance(found, str):
            wrong.append(found)
            _refuse(found, args.json)
            continue
        results.append(found)
        print(json.dumps(found.record()) if args.json else found)
        if not args.json:
            for line in found.mismatched[:20]:
                print("     ", line)
    if not results and not wrong:
        _refuse("zero cases: no .json file there", args.json)
    if wrong or not results:
        return 2
    return 1 if any(r.mismatched for r in results) else 0


if __name__ == "__main__":
    sys.exit(main())
