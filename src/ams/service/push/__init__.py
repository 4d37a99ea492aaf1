"""The use cases of push delivery: configurations, who delivers what, and its state.

pushing         configurations: checked, stored, verified; secrets replaced, and status shown
assignment      which subscriptions are delivered, by which process, and how that goes
identity        identity tokens of deliveries in Google's form
runner          the workers that deliver inside the service, and the engines as their upstream
"""
