"""Training of an agent's model by methods made of interchangeable parts.

One file a noun; recreate/plugins/rl/README.md says which part comes from where.

`recipe` needs no torch; every other module imports it. Shapes: B rows, T the padded response
length, V the vocabulary, K groups. Log-probs and entropies are in nats, rewards in whatever the
grader gives (0..1 here).
"""

NEEDS = ("bench", "local_models")
