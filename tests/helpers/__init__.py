"""What tests share: references to compare with, toy methods and data, and made-up run folders."""
