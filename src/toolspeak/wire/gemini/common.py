"""What both roles of Gemini's generateContent API share. Sans-IO."""

from __future__ import annotations

NAME = "gemini"

GENERATION_FIELDS = frozenset(
    {
        "audioTranscriptionConfig", "candidateCount", "enableEnhancedCivicAnswers", "frequencyPenalty", "imageConfig",
        "logprobs", "maxOutputTokens", "mediaResolution", "presencePenalty", "responseJsonSchema", "responseLogprobs",
        "responseMimeType", "responseModalities", "responseSchema", "seed", "speechConfig", "stopSequences",
        "temperature", "thinkingConfig", "topK", "topP",
    }
)  # fmt: skip
"""Options inside `generationConfig` (google-genai 3.4, `GenerateContentConfig`); others are fields of the body."""


def short_name(model: str) -> str:
    """`models/gemini-3-pro` → `gemini-3-pro`."""
    return model.removeprefix("models/")
