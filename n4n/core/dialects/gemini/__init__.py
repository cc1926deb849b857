"""Google's generateContent: the dialect `gemini` for AI Studio's keys, and `vertex` for the same bodies behind OAuth.

https://ai.google.dev/api/generate-content, https://cloud.google.com/vertex-ai/generative-ai/docs/model-reference/inference
"""

from n4n.core.dialects.gemini.dialect import Gemini as Gemini
from n4n.core.dialects.gemini.vertex import Vertex as Vertex
