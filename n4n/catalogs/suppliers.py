"""LiteLLM's providers and ours: the word before a model's name, and which dialect, address and key stand behind it.

https://docs.litellm.ai/docs/providers. `key` is the variable in which LiteLLM looks for the key where a config names none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Supplier:
    """One word of LiteLLM's. `base_url` empty: the config has to say it."""

    name: str  # of the provider in a catalog
    dialect: str = "openai"
    base_url: str = ""
    key: str | None = None


_OPENAI = Supplier("openai", base_url="https://api.openai.com/v1", key="OPENAI_API_KEY")
_BEDROCK = Supplier("bedrock", "bedrock", key="AWS_BEARER_TOKEN_BEDROCK")
_SELF_HOSTED = ("hosted_vllm", "openai_like", "custom_openai", "lm_studio", "llamafile", "xinference", "litellm_proxy", "vllm")
SUPPLIERS: dict[str, Supplier] = {
    "openai": _OPENAI,
    "text-completion-openai": _OPENAI,
    "azure": Supplier("azure", "azure", key="AZURE_API_KEY"),
    "azure_text": Supplier("azure", "azure", key="AZURE_API_KEY"),
    "azure_ai": Supplier("azure-foundry", key="AZURE_AI_API_KEY"),
    "anthropic": Supplier("anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
    "gemini": Supplier("gemini", "gemini", "https://generativelanguage.googleapis.com/v1beta", "GEMINI_API_KEY"),
    "vertex_ai": Supplier("vertex", "vertex"),
    "bedrock": _BEDROCK,
    "bedrock_converse": _BEDROCK,
    "mistral": Supplier("mistral", base_url="https://api.mistral.ai/v1", key="MISTRAL_API_KEY"),
    "together_ai": Supplier("together", base_url="https://api.together.ai/v1", key="TOGETHERAI_API_KEY"),
    "deepinfra": Supplier("deepinfra", base_url="https://api.deepinfra.com/v1/openai", key="DEEPINFRA_API_KEY"),
    "groq": Supplier("groq", base_url="https://api.groq.com/openai/v1", key="GROQ_API_KEY"),
    "fireworks_ai": Supplier("fireworks", base_url="https://api.fireworks.ai/inference/v1", key="FIREWORKS_AI_API_KEY"),
    "cerebras": Supplier("cerebras", base_url="https://api.cerebras.ai/v1", key="CEREBRAS_API_KEY"),
    "deepseek": Supplier("deepseek", base_url="https://api.deepseek.com/v1", key="DEEPSEEK_API_KEY"),
    "xai": Supplier("xai", base_url="https://api.x.ai/v1", key="XAI_API_KEY"),
    "openrouter": Supplier("openrouter", base_url="https://openrouter.ai/api/v1", key="OPENROUTER_API_KEY"),
    "perplexity": Supplier("perplexity", base_url="https://api.perplexity.ai", key="PERPLEXITYAI_API_KEY"),
    "nvidia_nim": Supplier("nvidia", base_url="https://integrate.api.nvidia.com/v1", key="NVIDIA_NIM_API_KEY"),
    "sambanova": Supplier("sambanova", base_url="https://api.sambanova.ai/v1", key="SAMBANOVA_API_KEY"),
    "moonshot": Supplier("moonshot", base_url="https://api.moonshot.ai/v1", key="MOONSHOT_API_KEY"),
    "ollama": Supplier("ollama", base_url="http://localhost:11434/v1"),
    "ollama_chat": Supplier("ollama", base_url="http://localhost:11434/v1"),
    **{word: Supplier(word.replace("_", "-")) for word in _SELF_HOSTED},
}
# Names that LiteLLM knows without a word before them.
_KNOWN = (
    (re.compile(r"(?:gpt|chatgpt|o[1-9]|text-embedding|davinci|babbage|codex|ft:gpt)"), "openai"),
    (re.compile(r"claude"), "anthropic"),
    (re.compile(r"gemini"), "vertex_ai"),
    (re.compile(r"(?:us|eu|apac|global)?\.?(?:anthropic|amazon|meta|mistral|cohere|deepseek|qwen|openai)\."), "bedrock"),
)  # fmt: skip
_BEDROCK_WAYS = frozenset(("converse", "converse_like", "invoke"))
_REGION = re.compile(r"[a-z]{2}(?:-[a-z]+)+-\d\Z")


@dataclass(frozen=True, slots=True)
class Named:
    """A model as LiteLLM names it: whose, what it is called there, and the region that its name holds."""

    word: str
    model: str
    region: str | None = None


def named(said: str, word: str | None = None) -> Named | None:
    """`provider/model`; None where nothing tells whose it is. `word`: the config says it apart."""
    head, slash, rest = said.partition("/")
    if word is None and slash and (head in SUPPLIERS or "_" in head or not _guess(said)):
        word, said = head, rest
    elif word is not None and head == word:
        said = rest
    word = word or _guess(said)
    if word is None or not said:
        return None
    if word in ("bedrock", "bedrock_converse"):
        return _at_bedrock(said)
    if word in ("azure", "azure_text"):
        region, _, deployment = said.partition("/")
        return Named(word, deployment, region) if deployment and region in ("us", "eu", "global", "global-standard") else Named(word, said)
    return Named(word, said)


def _guess(said: str) -> str | None:
    return next((word for pattern, word in _KNOWN if pattern.match(said)), None)


def _at_bedrock(said: str) -> Named:
    region = None
    parts = said.split("/")
    while len(parts) > 1 and (parts[0] in _BEDROCK_WAYS or _REGION.match(parts[0])):
        region = parts[0] if parts[0] not in _BEDROCK_WAYS else region
        del parts[0]
    return Named("bedrock", "/".join(parts), region)
