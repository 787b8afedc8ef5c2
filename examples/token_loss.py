"""The token-loss head of RL fine-tuning: everything that a policy-gradient step needs from two models' logits.

For every token: the log-probability of the token that was sampled, the entropy of the policy, and the KL divergence of
the policy from a frozen reference model; then the clipped surrogate loss (PPO, Schulman et al. 2017) with a KL penalty.
There is no matrix product in it: all the time goes to generated kernels, so a faster kernel is a faster model.

    python -m kernelopt capture examples/token_loss.py:make -o out/token_loss
"""

import torch

TOKENS, VOCABULARY = 256, 32_000
CLIP, KL_WEIGHT, ENTROPY_WEIGHT = 0.2, 0.05, 0.01


def token_loss(
    logits: torch.Tensor,
    reference_logits: torch.Tensor,
    tokens: torch.Tensor,
    old_log_prob: torch.Tensor,
    advantage: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    """Loss of every token, and the three statistics that a trainer logs.

    Args:
        logits, reference_logits: [tokens, vocabulary], of the policy and of the frozen reference.
        tokens: [tokens], indices of the sampled tokens.
        old_log_prob, advantage: [tokens], from the rollout.
    """
    log_probs = torch.log_softmax(logits, dim=-1)
    reference = torch.log_softmax(reference_logits, dim=-1)
    probs = log_probs.exp()
    entropy = -(probs * log_probs).sum(dim=-1)
    kl = (probs * (log_probs - reference)).sum(dim=-1)
    log_prob = log_probs.gather(-1, tokens.unsqueeze(-1)).squeeze(-1)
    ratio = (log_prob - old_log_prob).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
    loss = -surrogate + KL_WEIGHT * kl - ENTROPY_WEIGHT * entropy
    return loss, log_prob, entropy, kl


def make(device: str = "cpu"):
    """The loss and example inputs: logits as sharp as a trained model's, the reference a little off the policy."""
    generator = torch.Generator(device).manual_seed(0)

    def normal(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return scale * torch.randn(*shape, generator=generator, device=device)

    logits = normal(TOKENS, VOCABULARY, scale=3.0)
    reference_logits = logits + normal(TOKENS, VOCABULARY, scale=0.3)
    tokens = torch.distributions.Categorical(logits=logits).sample()
    old_log_prob = torch.log_softmax(logits, -1).gather(-1, tokens[:, None])[:, 0] + normal(TOKENS, scale=0.1)
    return token_loss, (logits, reference_logits, tokens, old_log_prob, normal(TOKENS))
