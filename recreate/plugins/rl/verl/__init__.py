"""The same recipes on a cluster, by verl: it distributes, we hand it advantages, losses and
attempts.

    job           writes the run folder: verl's config, the tasks, the recipe, run.sh  (needs
                  neither torch nor verl)
    translate     a recipe in verl's words, and what of a recipe verl cannot do
    plugin        what `import verl` loads in every process; it registers the rest
    functions     our advantages and policy losses, with the signatures of verl's registries
    agent_loop    verl's agent loop: one attempt of our scaffold in a sandbox, graded
    model         the model under training, answered by verl's servers
    sync_trainer  verl's synchronous trainer, with attempts of several rows, GiGPO's steps and A2R's
                  replay

Written against verl 0.9.1, its v1 trainer. Nothing here is distributed by us.
"""
