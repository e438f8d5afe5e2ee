"""What a user describes (model, chip, network, layout, framework, job, assumption set): frozen
dataclasses in SI units whose fields say their unit, range and meaning. No computation."""
