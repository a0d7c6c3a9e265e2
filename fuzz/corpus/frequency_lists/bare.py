# older form
[
[1410, 1395, 1380, 1200],
[1410, 1395, 1380, 1200],
]
# Iteration 0: cost change 0.1 
