"""Text models: generating, embedding, classifying."""
